() => {
  // Gradio gives each radio button its own name, which breaks the arrow keys. Before a key moves the focus, give the
  // buttons of a group one name, so that they are one tab stop even after Gradio has created them again.
  const group = (event) => {
    if (event.key !== "Tab" && !event.key.startsWith("Arrow")) return;
    for (const block of document.querySelectorAll("fieldset.block")) {
      const [first, ...others] = block.querySelectorAll("input[type=radio]");
      for (const radio of others) radio.name = first.name;
    }
  };
  document.addEventListener("keydown", group, true);
}
