"""Finding pages that were computed before, by their content. Plain Python without tensors.

Full pages form a tree: a node is reached from its parent by the tokens of one page, so that a node
stands for exactly one sequence of tokens from the beginning on. It is a chain of hashes with an
exact check: a dictionary hashes the tokens to narrow, and compares them to decide.

    root(model, dtype, KV dtype)
     └─ static page ─ static page          found by every owner
         ├─ ("ann", page) ─ page ─ page    found by ann only
         └─ ("ben", page)                  found by ben only

The owner is part of the step that leaves the static prompt. So nobody can tell from their own
latency what another owner has asked.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

Step = tuple[str | None, tuple[int, ...]]


@dataclass(eq=False)
class Node:
    """One page's content after its parent's.

    Attributes:
        parent: None for a root.
        step: the owner (None within the static prompt) and the tokens that lead here.
        children: by their step.
        pages: pages in the pool that hold this content; more than one when it was computed twice.
    """

    parent: "Node | None"
    step: Step
    children: dict[Step, "Node"] = field(default_factory=dict)
    pages: list[int] = field(default_factory=list)

    @property
    def is_static(self) -> bool:
        return self.step[0] is None

    def below(self) -> Iterator["Node"]:
        """This node and all its descendants, a parent before its children."""
        waiting = [self]  # no recursion: a long context is a deep tree
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


@dataclass(frozen=True)
class PrefixStats:
    """Since the engine started.

    Attributes:
        looked_up_tokens: full-page tokens of sequences that came without KV.
        hit_tokens: of these, found with KV, static ones included.
        evicted_tokens: whose page was given to someone else.
    """

    looked_up_tokens: int
    hit_tokens: int
    evicted_tokens: int


class PrefixCache:
    """The tree of published pages.

    It holds no page: whoever reuses a page must `forget` it first.
    """

    def __init__(self) -> None:
        self._roots: dict[Hashable, Node] = {}
        self._home: dict[int, Node] = {}

    def root(self, *salt: Hashable) -> Node:
        """The node where sequences begin whose KV depends on this too: model, dtype, KV dtype."""
        return self._roots.setdefault(salt, Node(None, (None, ())))

    @property
    def nodes(self) -> Iterator[Node]:
        """Every node but the roots."""
        for root in self._roots.values():
            yield from (node for node in root.below() if node is not root)

    def __contains__(self, page: int) -> bool:
        return page in self._home

    def find(self, parent: Node, tokens: Sequence[int], owner: str | None) -> Node | None:
        """The node after `parent` with these tokens that this owner may see, if it has a page."""
        content = tuple(tokens)
        for who in (None, owner) if parent.is_static else (owner,):
            node = parent.children.get((who, content))
            if node is not None and node.pages:
                return node
        return None

    def publish(self, parent: Node, tokens: Sequence[int], owner: str | None, page: int) -> Node:
        """Make a page findable. Its KV has been written, and nobody writes to it any more.

        Args:
            parent: node of the page before it.
            tokens: of this page, all of them.
            owner: None for the static prompt.
            page: in the pool.
        """
        step = (owner, tuple(tokens))
        node = parent.children.setdefault(step, Node(parent, step))
        self.put_back(node, page)
        return node

    def withdraw(self, page: int) -> Node:
        """Make a page unfindable whose content is about to be published on another one.

        Its node stays, even empty: `put_back` must follow.
        """
        node = self._home.pop(page)
        node.pages.remove(page)
        return node

    def put_back(self, node: Node, page: int) -> None:
        """Publish a page at a node of the tree."""
        node.pages.append(page)
        self._home[page] = node

    def forget(self, page: int) -> None:
        """Make a page unfindable. An equal page elsewhere stays findable."""
        node = self.withdraw(page)
        # A node without page and children leads nowhere.
        while node.parent is not None and not node.pages and not node.children:
            del node.parent.children[node.step]
            node = node.parent

    def check(self) -> None:
        """Every published page stands at exactly one node of the tree.

        Raises:
            RuntimeError: names what does not hold.
        """
        seen = [page for node in self.nodes for page in node.pages]
        if sorted(seen) != sorted(self._home):
            raise RuntimeError("the prefix tree and its index of pages differ")
        if any(not node.pages and not node.children for node in self.nodes):
            raise RuntimeError("the prefix tree holds a node that leads nowhere")
