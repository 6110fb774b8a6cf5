"""The trace of a question for people, as a tree: what was found and read, what was cut and why, which calls were made and what they cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from graphrag_local.cli.render import count, out

LISTED = 8  # records of one kind; the file has all
WINDOWS = 24
TITLES = {
    "passages": "Passages found", "neighbourhood": "Linked in the graph", "window": "Window", "ratings": "Reports rated", "tests": "Passages tested",
    "points": "Points", "support": "Support", "nearest": "Nearest, not answering",
}  # fmt: skip


def print_trace(content: Mapping[str, Any]) -> None:
    """The tree of a trace on stdout."""
    answer = content["answer"]
    tree = Tree(Text(f"{content['question']}", style="bold"), guide_style="dim")
    mode = content["mode"] if answer is None or answer["mode"] == content["mode"] else f"{content['mode']}: {answer['mode']}"
    tree.add(Text(f"mode {mode}, generation {content['generation']}, model {content['model']['name']}"))
    _retrieval(tree, [step for step in content["steps"] if step["step"] != "support"])
    _verdicts(tree, [step for step in content["steps"] if step["step"] == "support"])
    _costs(tree, content)
    notes = tree.add(Text("Notes" if answer else "There is no answer: the question ended with an error"))
    for note in answer["notes"] if answer else ():
        notes.add(Text(note))
    console = out()
    console.print(tree, soft_wrap=not console.is_terminal)


def _retrieval(tree: Tree, steps: Sequence[Mapping[str, Any]]) -> None:
    windows = 0
    for step in steps:
        windows += step["step"] == "window"
        if step["step"] == "window" and windows > WINDOWS:
            continue
        branch = tree.add(Text(_title(step)))
        for ranking, rows in step.get("rankings", {}).items():
            _records(branch.add(Text(f"ranking: {ranking}", style="dim")), rows) if rows else None
        led_by = branch.add(Text("led there by names")) if step.get("led_by") else branch
        for owner, name in step.get("led_by", {}).items():
            led_by.add(Text(f"{owner[:8]}  {name}"))
        _records(branch.add(Text(f"kept: {len(step['kept'])}")), step["kept"]) if step.get("kept") else None
        for cut in step.get("cut", ()):
            _records(branch.add(Text(f"cut: {len(cut['records'])}, {cut['why']}", style="yellow")), cut["records"])
        for number, point in enumerate(step.get("points", ()) if step["step"] == "points" else ()):
            room = "" if number < step["fitted"] else " (cut: no room in the final call)"
            branch.add(Text(f"{point['score']:>3}  {point['text']}{room}")) if number < LISTED or room else None
    if windows > WINDOWS:
        tree.add(Text(f"and {windows - WINDOWS:,} more windows, which are in the file", style="dim"))


def _title(step: Mapping[str, Any]) -> str:
    title = TITLES.get(step["step"], str(step["step"]))
    match step["step"]:
        case "passages":
            return f"{title} for: {' / '.join(step['asked'])}"
        case "window":
            gate = "" if step.get("gate") is None else f", gate {step['gate']:.3f}"
            forced = ", read whatever its gate says" if step.get("forced") else ""
            points = f", {count(step['points'], 'point')}" if "points" in step else ""
            return f"{title} ({step['what']}), {count(step['tokens'], 'token')}{gate}{forced}{points}"
        case "points":
            return f"{title}: {step['fitted']} of {len(step['points'])} in the final call"
    return title


def _records(branch: Tree, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows[:LISTED]:
        score = f"  {row['score']:.4f}" if "score" in row else ""
        branch.add(Text(f"{row['kind']} {row['id'][:8]}  {row['label']}{score}"))
    if len(rows) > LISTED:
        branch.add(Text(f"and {len(rows) - LISTED:,} more", style="dim"))


def _verdicts(tree: Tree, steps: Iterable[Mapping[str, Any]]) -> None:
    steps = list(steps)
    branch = tree.add(Text(f"{TITLES['support']}: {count(len(steps), 'sentence')} looked at")) if steps else tree
    for step in steps:
        p = "" if step["p"] is None else f" {step['p']:.2f}"
        lacking = f"; not in what it cites: {', '.join(step['lacking'])}" if step.get("lacking") else ""
        branch.add(Text(f"{step['verdict']}{p} ({step['by']}{lacking}): {step['sentence']}"))


def _costs(tree: Tree, content: Mapping[str, Any]) -> None:
    stages = content["stages"]
    branch = tree.add(Text(f"Calls: {sum(usage['calls'] for usage in stages.values()):,}"))
    for name, usage in stages.items():
        cost = f"{usage['prompt_tokens']:,} prompt ({usage['cached_tokens']:,} cached) + {usage['completion_tokens']:,} completion tokens"
        branch.add(Text(f"{name}: {count(usage['calls'], 'call')}, {cost}, {usage['seconds']:.1f} s"))
    for call in content["calls"]:
        if "error" in call:
            branch.add(Text(f"{call['stage']}: {call['error']['message']}", style="yellow"))
