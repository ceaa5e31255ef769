(address) => {
  // The address bar always holds the current decode, so that a reload or a copied link opens it again. The tab and the
  // Attention tab's view stand there too, put there by others.
  const query = new URLSearchParams(address);
  const others = ["tab", "view", "block", "layer", "head", "row", "probe", "step", "__theme"];
  for (const [name, value] of new URLSearchParams(window.location.search)) {
    if (others.includes(name)) query.append(name, value);
  }
  window.history.replaceState(window.history.state, "", "?" + query);
  return address;
}
