// Downloads of the bench's charts and metrics; loaded when one is asked for.

import { download, downloadCsv, fileName } from "../../web/files.js";
import { historyRows } from "../../web/history_rows.js";
import { feed } from "../../web/run_feed.js";

export async function savePictures(charts, withRates) {
  for (const name of withRates ? ["loss", "accuracy", "rate", "norm"] : ["loss", "accuracy"]) {
    const title = feed.latest?.title + ": " + name;
    const canvas = await charts[name].toCanvas({ title, width: 640, height: 340 });
    canvas.toBlob((blob) => download(blob, fileName(title, "png")));
  }
}

export const saveTable = () => downloadCsv(historyRows(feed.metrics), fileName(feed.latest?.title ?? "metrics", "csv"));
