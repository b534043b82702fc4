"""The house as a figure: which room imports which, and how many floors that makes.

`python tests/house.py` counts this tree, prints the table and draws `docs/house.svg`;
`python tests/house.py TREE` counts another tree the same way and draws nothing.

A module is a .py file of a room, a room a folder that holds some. An arrow leads from a module to
another one that it imports, anywhere in its code, and is counted once a pair; from room to room
likewise. A floor is a step of the longest chain of arrows, its two ends counted, and whatever
imports itself in a circle stands on one floor.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
# The import order: a room may import its own modules and those of rooms above it, nothing else
# (tests/test_imports.py). What measures stands before what judges, and that before what shows.
ROOMS = (
    "layouts",
    "profiles",
    "kernels",
    "kernels/probes",
    "kernels/xqa",
    "kernels/flashinfer",
    "kernels/triton",
    "harness",
    "harness/records",
    "harness/timing/clocks",
    "harness/timing",
    "harness/workers",
    "harness/counting",
    "harness/judging",
    "harness/gate",
    "harness/instruments",
    "harness/show",
    "harness/study",
    "harness/plugin",
    "harness/cli",
)
TOPS = tuple(dict.fromkeys(room.partition("/")[0] for room in ROOMS))


# --- what the code says -------------------------------------------------------------------------


def module_files(tree: Path) -> dict[str, Path]:
    """Every module of the rooms by its dotted name."""
    files = [path for top in TOPS for path in sorted((tree / top).rglob("*.py"))]
    return {_dotted(path.relative_to(tree)): path for path in files}


def _dotted(path: Path) -> str:
    return ".".join(("pagebench", *path.with_suffix("").parts))


def imported(path: Path) -> list[str]:
    """Dotted names that a file imports anywhere: modules, and whatever is imported from them."""
    return [name for node in ast.walk(ast.parse(path.read_text())) for name in _names(node)]


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def module_arrows(tree: Path) -> nx.DiGraph:
    """Modules, and an arrow to each that they import."""
    files = module_files(tree)
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for module, path in files.items():
        graph.add_edges_from((module, name) for name in imported(path) if name in files)
    return graph


def room_of(module: str) -> str:
    """`harness/records` of `pagebench.harness.records.store`."""
    return "/".join(module.split(".")[1:-1])


def room_arrows(modules: nx.DiGraph) -> nx.DiGraph:
    """Rooms, of so many `modules`; an arrow has a `count` of the arrows that it stands for."""
    rooms = nx.DiGraph()
    for room, number in Counter(map(room_of, modules)).items():
        rooms.add_node(room, modules=number)
    pairs = Counter((room_of(importer), room_of(taken)) for importer, taken in modules.edges)
    for (importer, taken), number in pairs.items():
        if importer != taken:
            rooms.add_edge(importer, taken, count=number)
    return rooms


# --- counting -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """A graph in three numbers."""

    nodes: int
    arrows: int
    floors: int


def count(graph: nx.DiGraph) -> Count:
    return Count(len(graph), graph.number_of_edges(), max(floors(graph).values(), default=0))


def floors(graph: nx.DiGraph) -> dict[str, int]:
    """The floor of each node: 1 where nothing is imported, else one above the highest import."""
    circles = nx.condensation(graph)
    floor: dict[int, int] = {}
    for circle in reversed(list(nx.topological_sort(circles))):
        floor[circle] = 1 + max((floor[below] for below in circles.successors(circle)), default=0)
    return {node: floor[circle] for node, circle in circles.graph["mapping"].items()}


def table(modules: nx.DiGraph) -> str:
    """What is printed, and stands in docs/architecture.md."""
    rows = [("modules", count(modules)), ("rooms", count(room_arrows(modules)))]
    lines = [f"| {name} | {c.nodes} | {c.arrows} | {c.floors} |" for name, c in rows]
    return "\n".join(["| of | there are | arrows | floors |", "|---|---|---|---|", *lines])


# --- drawing ------------------------------------------------------------------------------------

WIDTH, MARGIN = 1000, 16
ROW, HEAD = 32, 64  # a room's height; what stands above the first
FLOOR_LABEL, FIRST_BOX, BOX = 64, 224, 24  # width of a floor's number, of the first box; height
COLOURS = {"layouts": "#d8ecd0", "profiles": "#f6e3c5", "kernels": "#d3e4f5", "harness": "#ece0f3"}
INK, LINE, BANDS = "#1f2328", "#8c959f", ("#ffffff", "#f6f8fa")
STYLE = (
    f"text {{ font-family: 'DejaVu Sans', Verdana, Arial, sans-serif; fill: {INK} }} "
    f"path {{ fill: none; stroke: {LINE}; stroke-width: 1.2 }}"
)


@dataclass(frozen=True)
class Place:
    """Where a room stands: its row's middle and the column that arrows to it come down in."""

    x: float
    y: float
    floor: int


def places(rooms: nx.DiGraph) -> dict[str, Place]:
    """Rooms in steps from top left to bottom right, the highest floor first."""
    floor = floors(rooms)
    ordered = sorted(rooms, key=lambda room: (floor[room], _rank(room)), reverse=True)
    first = MARGIN + FLOOR_LABEL + FIRST_BOX - 40
    step = (WIDTH - MARGIN - 24 - first) / max(1, len(ordered) - 1)
    return {
        room: Place(first + step * number, HEAD + ROW * (number + 0.5), floor[room])
        for number, room in enumerate(ordered)
    }


def _rank(room: str) -> int:
    """Its place in the import order; a room without one comes first."""
    return ROOMS.index(room) if room in ROOMS else -1


def draw(rooms: nx.DiGraph) -> str:
    """An SVG. A room's imports leave it to the right and turn down, where a number counts them."""
    at = places(rooms)
    height = HEAD + ROW * len(at) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{len(at)} rooms and the arrows between them</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill: {LINE}"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{height}" fill="{BANDS[0]}"/>',
        *_caption(),
        *_bands(at),
        *_lines(rooms, at),
        *(_box(room, rooms.nodes[room]["modules"], place) for room, place in at.items()),
        *(_number(at[a].y, at[b].x, rooms.edges[a, b]["count"]) for a, b in sorted(rooms.edges)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, size: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">{text}</text>'
    )


def _caption() -> list[str]:
    return [
        _text(MARGIN, 26, 14, "A room imports rooms on floors below it, and nothing else."),
        _text(
            MARGIN,
            46,
            12,
            "A number counts the arrows from modules of the room on its left to modules of the "
            "room straight below it. In a box: the room's modules.",
        ),
    ]


def _bands(at: dict[str, Place]) -> list[str]:
    """A stripe a floor, and its number."""
    parts = []
    for floor in sorted({place.floor for place in at.values()}):
        rows = [place.y for place in at.values() if place.floor == floor]
        top, size = min(rows) - ROW / 2, ROW * len(rows)
        fill = BANDS[floor % 2]
        parts += [
            f'<rect y="{top:.1f}" width="{WIDTH}" height="{size:.1f}" fill="{fill}"/>',
            _text(MARGIN, top + size / 2 + 4, 12, f"floor {floor}"),
        ]
    return parts


def _lines(rooms: nx.DiGraph, at: dict[str, Place]) -> list[str]:
    """A line to the right of each room that imports, one down to each that is imported."""
    across = [
        f'<path d="M{at[room].x:.1f} {at[room].y:.1f} H{max(ends):.1f}"/>'
        for room in at
        if (ends := [at[taken].x for taken in rooms.successors(room)])
    ]
    down = [
        f'<path d="M{at[room].x:.1f} {min(tops):.1f} V{at[room].y - BOX / 2:.1f}" '
        'marker-end="url(#tip)"/>'
        for room in at
        if (tops := [at[importer].y for importer in rooms.predecessors(room)])
    ]
    return across + down


def _box(room: str, modules: int, place: Place) -> str:
    label = f"{room} · {modules}"
    width = 7.6 * len(label) + 16
    left = place.x + 22 - width
    return (
        f'<rect x="{left:.1f}" y="{place.y - BOX / 2:.1f}" width="{width:.1f}" height="{BOX}" '
        f'rx="4" fill="{COLOURS[room.partition("/")[0]]}" stroke="{INK}" stroke-width="0.8"/>'
        + _text(left + width / 2, place.y + 4.5, 12.5, label, "middle")
    )


def _number(y: float, x: float, amount: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9.5" fill="#ffffff" stroke="{LINE}"/>' + _text(
        x, y + 4, 11, str(amount), "middle"
    )


def main(tree: Path | None = None) -> None:
    modules = module_arrows(tree or ROOT)
    print(table(modules))
    if tree is None:
        (ROOT / "docs" / "house.svg").write_text(draw(room_arrows(modules)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
