// Where the transcript stands: at its end while it follows what comes in, and otherwise where the
// person has put it.
(() => {
  const root = document.documentElement;
  const pageturn = (window.pageturn ??= {});
  const NEAR_PX = 60;
  let box = null; // what scrolls
  let atEnd = true;
  let place = 0; // where it was when it was last seen
  let below = null; // while earlier turns come in above: how far the place is from the end

  const settle = () => {
    if (!box.clientHeight) return; // another part of the page is in front
    if (below !== null) box.scrollTop = box.scrollHeight - below;
    else box.scrollTop = atEnd ? box.scrollHeight : place;
  };

  // Whatever comes in is followed from now on.
  pageturn.follow = () => {
    atEnd = true;
    below = null;
    if (box) settle();
  };

  // Earlier turns are about to come in: what is being read stays where it is.
  pageturn.hold = () => {
    below = box.scrollHeight - box.scrollTop;
  };

  const begin = (found) => {
    box = found;
    box.addEventListener("scroll", () => {
      if (!box.clientHeight || below !== null) return;
      place = box.scrollTop;
      atEnd = box.scrollHeight - place - box.clientHeight < NEAR_PX;
      root.dataset.transcript = atEnd ? "end" : "above";
    });
    for (const moved of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      box.addEventListener(moved, () => (below = null), { passive: true });
    }
    const sizes = new ResizeObserver(settle);
    for (const part of [box, ...box.children]) sizes.observe(part);
    settle();
  };

  new MutationObserver((_, observer) => {
    const found = document.querySelector("#pt-scroll");
    if (!found?.querySelector("#pt-live")) return;
    observer.disconnect();
    begin(found);
  }).observe(document, { childList: true, subtree: true });

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-to-end]")) pageturn.follow();
  });
})();
