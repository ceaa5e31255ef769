(address) => {
  // Keep the current decode in the address, so that a reload or a copied link restores it. Other scripts keep the
  // open tab and the selected view there.
  const wanted = new URLSearchParams(address);
  const query = new URLSearchParams(window.location.search);
  const strategy = ["strategy", "prefix", "repetition_penalty", "beam_size", "length_penalty", "n_best", "temperature",
    "top_k", "top_p", "seed"];
  const heads = ["ablate", "ablate_with", "pattern"];
  for (const name of ["run", "input", ...strategy, ...heads]) query.delete(name);
  for (const [name, value] of wanted) query.set(name, value);
  window.history.replaceState(window.history.state, "", "?" + query);
  return address;
}
