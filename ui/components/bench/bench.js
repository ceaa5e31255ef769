// The bench: loss and accuracy, the answers and the heads of the latest snapshot, and a slider over all snapshots.

import { partsOf } from "../../web/dom.js";
import { laterStyles } from "../../web/later_styles.js";
import { onFeed } from "../../web/run_feed.js";
import { answersPanel } from "./answers.js";
import { metricCharts } from "./metric_charts.js";
import { headsPanel } from "./heads.js";
import { nextSteps } from "./next_steps.js";

export function mount({ element, props, server }) {
  const part = partsOf(element);
  const panels = [metricCharts(element, part), answersPanel(part), headsPanel(element, part),
    nextSteps(part, props.offersTour ?? true)];
  /** Add what is in a fold when it is opened for the first time. */
  const addWhenOpened = (fold, load) => part(fold).addEventListener("toggle", async () => {
    panels.push(await load());
    panels.at(-1)();
  }, { once: true });
  addWhenOpened("health", async () => {
    const [{ healthCharts }] = await Promise.all([import("./health_charts.js"), laterStyles()]);
    return healthCharts(part, server);
  });
  addWhenOpened("numbers", async () => (await import("./metrics_table.js")).metricsTable(element, part));
  const stop = onFeed(() => {
    if (!element.isConnected && panels.mounted) return stop();
    panels.mounted ||= element.isConnected;
    for (const show of panels) show();
    return undefined;
  });
}
