// The heads of one layer beside an answer. Event: 'pick' {head}. (Not 'head': gr.HTML has an attribute of that name.)

function takeValue() {
  const heads = props.value?.heads ?? [];
  part("thumbnails").replaceChildren(...heads.map((head) => {
    const thumbnail = makeThumbnail(128);
    thumbnail.show(head);
    const open = () => trigger("pick", { head: head.head });
    return make("button", { type: "button", class: "thumbnail", onclick: open }, ...thumbnail.nodes);
  }));
  setText(part("uniform"), uniformSentence(props.value?.uniform_mass));
}

takeValue();
watch("value", takeValue);
