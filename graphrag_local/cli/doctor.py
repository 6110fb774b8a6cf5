"""`doctor`: is everything that `index` and `query` need in place?"""

import typer

from graphrag_local.cli.options import HERE, AsJson, Overrides, Project

NAME = "doctor"


def run(directory: Project = HERE, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check what index and query need, and say what to do. Settings, folders, models, the server, its speed and the index.

    \b
        graphrag-local doctor my-project
    """
    import asyncio

    from graphrag_local.cli.render import out, print_json, say
    from graphrag_local.doctor import examine
    from graphrag_local.project import open_project

    findings = asyncio.run(examine(open_project(directory, tuple(overrides or ()))))
    if as_json:
        print_json(findings)
    else:
        console = out()
        for finding in findings:
            mark = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}[finding["state"]]
            say(console, f"{mark}  {finding['what']}: {finding['found']}")
            if finding["hint"]:
                say(console, finding["hint"], indent=6)
    if any(finding["state"] == "fail" for finding in findings):
        raise typer.Exit(1)
