(address) => {
  // The address bar always holds the current decode, so that a reload or a copied link opens it again. What else stands
  // there, such as the tab and what of it is looked at, others put there.
  const wanted = new URLSearchParams(address);
  const query = new URLSearchParams(window.location.search);
  const strategy = ["strategy", "prefix", "repetition_penalty", "beam_size", "length_penalty", "n_best", "temperature",
    "top_k", "top_p", "seed"];
  const heads = ["without", "ablation", "force"];
  for (const name of ["run", "input", ...strategy, ...heads]) query.delete(name);
  for (const [name, value] of wanted) query.set(name, value);
  window.history.replaceState(window.history.state, "", "?" + query);
  return address;
}
