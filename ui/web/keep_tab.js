() => {
  // Keep the open tab in the address, so that a reload restores it.
  const keep = () => {
    const open = document.querySelector("#tabs [role=tab][aria-selected=true]");
    if (!open) return;
    const query = new URLSearchParams(window.location.search);
    if (query.get("tab") === open.textContent.trim().toLowerCase()) return;
    query.set("tab", open.textContent.trim().toLowerCase());
    window.history.replaceState(window.history.state, "", "?" + query);
  };
  new MutationObserver(keep).observe(document.body, { attributes: true, attributeFilter: ["aria-selected"], subtree: true });
}
