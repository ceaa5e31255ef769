// Charts that share their cursor and zoom.

const groups = new Map(); // name → group; only of charts that exist

/**
 * Join the group with a name (null: a chart for itself). A member is { cursorMoved(), zoomed() }, called when the
 * group's cursor or zoom changed.
 */
export function joinGroup(name, member) {
  const group = groups.get(name) ?? { cursor: null, zoom: null, members: new Set() };
  if (name !== null) groups.set(name, group);
  group.members.add(member);
  return {
    /** The x of the cursor, or null. */
    get cursor() { return group.cursor; },
    /** [from, to], or null if nothing is zoomed. */
    get zoom() { return group.zoom; },
    moveCursor(x) {
      if (x === group.cursor) return;
      group.cursor = x;
      for (const each of group.members) each.cursorMoved();
    },
    zoomTo(range) {
      if (range === group.zoom) return;
      group.zoom = range;
      for (const each of group.members) each.zoomed();
    },
    leave() {
      group.members.delete(member);
      if (!group.members.size) groups.delete(name);
    },
  };
}
