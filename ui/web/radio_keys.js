() => {
  // Gradio gives each radio button a name of its own, so that the arrow keys would not lead from one to the next. Named
  // alike when a key is about to move the focus, those of a group are one stop of Tab, however often they are made anew.
  const group = (event) => {
    if (event.key !== "Tab" && !event.key.startsWith("Arrow")) return;
    for (const block of document.querySelectorAll("fieldset.block")) {
      const [first, ...others] = block.querySelectorAll("input[type=radio]");
      for (const radio of others) radio.name = first.name;
    }
  };
  document.addEventListener("keydown", group, true);
}
