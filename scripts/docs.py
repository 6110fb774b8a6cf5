"""Writes the generated blocks of README.md: commands, settings, prompts, file tree. `python scripts/docs.py --check` fails when one is stale.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from graphrag_local.cli.main import app
from graphrag_local.configuration import known_keys
from graphrag_local.presets import PRESETS
from graphrag_local.prompting import load_all
from graphrag_local.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> str:
    """Every command's help as it prints."""
    parts = []
    for path in command_paths():
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}).output
        parts.append(f"### `graphrag-local {' '.join(path)}`\n\n```text\n{_plain(shown)}\n```\n")
    return "\n".join(parts)


def command_paths() -> list[tuple[str, ...]]:
    """Every command as the words that call it, groups opened."""
    paths: list[tuple[str, ...]] = []
    for name, command in sorted(get_command(app).commands.items()):  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        paths += [(name, sub) for sub in inner] if inner else [(name,)]
    return paths


def _plain(text: str) -> str:
    lines = (re.sub(r"[╭╮╰╯│─]+", " ", line).rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line[1:] if line.startswith("  ") else line.strip() for line in lines)).strip()


def settings() -> str:
    """A table of every setting with its default, and the presets."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    defaults = Settings().model_dump(mode="json")
    for key, text in known_keys().items():
        section, _, name = key.rpartition(".")
        value = defaults[section][name] if section else defaults[name]
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
        rows.append(f"| `{key}` | {f'`{shown}`' if shown else ''} | {text} |")
    presets = ["", "Presets set these together (a file or flag still goes before them):", ""]
    for preset, sections in PRESETS.items():
        pairs = (f"`{s}.{k}={str(v).lower() if isinstance(v, bool) else v}`" for s, values in sections.items() for k, v in values.items())
        presets.append(f"- `{preset}`: {', '.join(pairs)}")
    return "\n".join(rows + presets)


def prompts() -> str:
    """A table of the prompt files."""
    rows = ["| prompt | used by | variables |", "|---|---|---|"]
    rows += [f"| `prompts/{p.name}.md` | `{p.used_by}` | {', '.join(f'`{v}`' for v in p.variables)} |" for p in load_all().values()]
    return "\n".join(rows)


def tree() -> str:
    """The package with the first sentence of each module."""
    lines = ["```text"]
    package = ROOT / "graphrag_local"
    for path in sorted(package.rglob("*.py"), key=lambda p: (len(p.relative_to(package).parts) > 1, p.as_posix())):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if doc:
            name = path.relative_to(package).as_posix()
            lines.append(f"{name:<34} {doc.splitlines()[0]}")
    return "\n".join([*lines, "```"])


BLOCKS: dict[str, Callable[[], str]] = {"commands": commands, "settings": settings, "prompts": prompts, "tree": tree}


def render(text: str) -> str:
    """The README with every block made anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


def main() -> int:
    """Write, or with --check compare."""
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = render(old)
    if "--check" in sys.argv:
        print("README.md is current." if new == old else "README.md is stale: run `python scripts/docs.py`.")
        return int(new != old)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
