"""Prompts: one Markdown file each, with a front matter that names its purpose and variables.

A prompt file has two parts, split at a line `---user---`: what is said as system, and what is said as user. Templates are strict: a missing
variable is an error. Document text is always a variable, never part of a template, so braces in a text break nothing. A project's own
`prompts/` folder goes before the packaged one.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError

from graphrag_local.errors import GraphragError
from graphrag_local.ids import digest_of

_ENVIRONMENT = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False)  # noqa: S701
PACKAGED = (Path(__file__).parent / "prompts", Path(__file__).parent.parent / "prompts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt file: its name, what it is for, its variables, and its two templates."""

    name: str
    used_by: str
    variables: tuple[str, ...]
    system: str
    user: str

    def render(self, **values: object) -> tuple[Message, ...]:
        """The messages of one call; raises GraphragError naming the file when a variable is missing."""
        try:
            system = _template(self.system).render(**values).strip()
            user = _template(self.user).render(**values).strip()
        except TemplateError as error:
            hint = "Compare your prompts/ folder with the packaged prompt of that name."
            raise GraphragError(f"Prompt {self.name!r}: {error}.", hint=hint) from error
        turns = (Message(role="system", content=system),) if system else ()
        return (*turns, Message(role="user", content=user))

    def fingerprint(self) -> str:
        """The digest of the file's two templates; kept in the manifest to say what a changed prompt will redo."""
        return digest_of(self.system, self.user)


@cache
def _template(source: str):  # type: ignore[no-untyped-def]
    return _ENVIRONMENT.from_string(source)


def parse(name: str, source: str) -> Prompt:
    """A prompt from its file's text."""
    lines = source.replace("\r\n", "\n").split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        raise GraphragError(f"Prompt {name!r} has no front matter.", hint="Begin the file with --- lines that name used_by and variables.")
    close = lines.index("---", 1)
    front = dict(line.split(":", 1) for line in lines[1:close] if ":" in line)
    body = "\n".join(lines[close + 1 :])
    system, mark, user = body.partition("\n---user---\n")
    if not mark:
        system, user = "", body
    variables = tuple(v.strip() for v in front.get("variables", "").split(",") if v.strip())
    return Prompt(name=name, used_by=front.get("used_by", "").strip(), variables=variables, system=system, user=user)


def folder() -> Path:
    """Where the packaged prompts are: inside the wheel, or at the top of a checkout."""
    for path in PACKAGED:
        if path.is_dir():
            return path
    raise GraphragError("The packaged prompts are missing.", hint="Reinstall graphrag-local.")


def load(name: str, project: Path | None = None) -> Prompt:
    """The prompt of that name: the project's own where there is one, else the packaged one."""
    for base in ([project / "prompts"] if project else []) + [folder()]:
        path = base / f"{name}.md"
        if path.is_file():
            return parse(name, path.read_text(encoding="utf-8"))
    raise GraphragError(f"There is no prompt {name!r}.", hint=f"Prompts are Markdown files in {folder()}.")


def load_all(project: Path | None = None) -> dict[str, Prompt]:
    """Every packaged prompt by name, overridden by the project's own."""
    return {path.stem: load(path.stem, project) for path in sorted(folder().glob("*.md")) if path.stem != "README"}
