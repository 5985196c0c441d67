// The status line of every Gradio component counts seconds with each frame of the screen, shown or
// not, and the first one goes on after it has left the page: a browser would then draw sixty times a
// second for as long as the page is open, on cores that the engine computes on. Four will do.
(() => {
  const COUNT_MS = 250;
  const source = Function.prototype.toString;
  const frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) =>
    source.call(callback).includes("performance.now()")
      ? setTimeout(() => callback(performance.now()), COUNT_MS)
      : frame(callback);
})();
