// Two things that Gradio's scripts do so often that they take the cores that the engine computes on.
(() => {
  // The status line of every component counts seconds with each frame of the screen, shown or not,
  // and the first one goes on after it has left the page: a browser would then draw sixty times a
  // second for as long as the page is open. Four will do.
  const COUNT_MS = 250;
  const source = Function.prototype.toString;
  const frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) =>
    source.call(callback).includes("performance.now()")
      ? setTimeout(() => callback(performance.now()), COUNT_MS)
      : frame(callback);

  // With every update all values of the page are cloned, each string and number by a call of this.
  const clone = window.structuredClone.bind(window);
  const ITSELF = new Set(["string", "number", "boolean", "undefined", "bigint"]);
  window.structuredClone = (value, options) =>
    value === null || ITSELF.has(typeof value) ? value : clone(value, options);
})();
