// The bench: loss and accuracy, the answers and the heads of the latest snapshot, and a slider over all snapshots.

import { partsOf } from "../../web/dom.js";
import { onFeed } from "../../web/run_feed.js";
import { answersPanel } from "./answers.js";
import { metricCharts } from "./metric_charts.js";
import { headsPanel } from "./heads.js";
import { metricsTable } from "./metrics_table.js";
import { nextSteps } from "./next_steps.js";

export function mount({ element, props, server }) {
  const part = partsOf(element);
  const panels = [metricCharts(element, part), answersPanel(part), headsPanel(element, part), metricsTable(element, part),
    nextSteps(part, props.offersTour ?? true)];
  part("health").addEventListener("toggle", async () => { // loaded when the fold is opened for the first time
    const { healthCharts } = await import("./health_charts.js");
    panels.push(healthCharts(part, server));
    panels.at(-1)();
  }, { once: true });
  const stop = onFeed(() => {
    if (!element.isConnected && panels.mounted) return stop();
    panels.mounted ||= element.isConnected;
    for (const show of panels) show();
    return undefined;
  });
}
