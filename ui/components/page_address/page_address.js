// Keeps the current run and decode in the page's address.

import { patchAddress } from "../../web/address.js";

export function mount({ props, watch }) {
  const show = () => patchAddress(props.value?.parameters ?? {});
  show();
  watch("value", show);
}
