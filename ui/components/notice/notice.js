// A sentence to the visitor: how things are, or what was wrong with what they asked for.

function show() {
  const value = props.value ?? {};
  const line = part("notice");
  line.hidden = !value.text;
  line.className = value.problem ? "notice bad" : "notice quiet";
  setText(line, (value.problem ? "✗ " : "") + (value.text ?? ""));
}

show();
watch("value", show);
