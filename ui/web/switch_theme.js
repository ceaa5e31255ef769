() => {
  const dark = document.body.classList.toggle("dark");
  const query = new URLSearchParams(window.location.search);
  query.set("__theme", dark ? "dark" : "light");
  window.history.replaceState(window.history.state, "", "?" + query);
}
