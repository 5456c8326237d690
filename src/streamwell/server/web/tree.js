// A chat that branches: which messages follow which, and the way that is shown. Pure.

export const ROOT = 'root';

/** Items in the order in which they were added, as a tree. */
export class Tree {
  items;
  #byId = new Map();
  #children = new Map();
  #previous = new Map();

  constructor(items) {
    this.items = items;
    items.forEach((item, at) => {
      const named = item.previous_item_id ?? items[at - 1]?.id ?? ROOT;
      const previous = this.#byId.has(named) ? named : ROOT;
      this.#byId.set(item.id, item);
      this.#previous.set(item.id, previous);
      if (!this.#children.has(previous)) this.#children.set(previous, []);
      this.#children.get(previous).push(item);
    });
  }

  get(id) {
    return this.#byId.get(id);
  }

  previous(id) {
    return this.#previous.get(id) ?? ROOT;
  }

  /** All items that stand in the same place, this one among them. */
  siblings(id) {
    return this.#children.get(this.previous(id)) ?? [];
  }

  /** The items from the beginning to the end of the way that goes by `chosen`, or else the newest. */
  path(chosen) {
    const wanted = new Set(this.wayTo(this.items.at(-1)?.id).map(({ id }) => id));
    const path = [];
    for (let at = ROOT; this.#children.has(at);) {
      const branches = this.#children.get(at);
      const item = branches.find(({ id }) => id === chosen.get(at))
        ?? branches.find(({ id }) => wanted.has(id)) ?? branches.at(-1);
      path.push(item);
      at = item.id;
    }
    return path;
  }

  /** The items from the beginning to one of them; none if that is the beginning, or not there. */
  wayTo(id) {
    const way = [];
    for (let item = this.get(id); item; item = this.get(this.previous(item.id))) way.push(item);
    return way.reverse();
  }
}
