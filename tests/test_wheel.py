"""The built wheel stands alone: installed into a fresh environment and run from another folder."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(name="program", scope="module")
def _program(wheel, tmp_path_factory):
    """The program in an environment that sees our dependencies, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    # A plain path line adds the dependencies without running the .pth files among them, so our editable install stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return folder / "bin/graphrag-local"


def run(program, *arguments, cwd):
    return subprocess.run([str(program), *arguments], cwd=cwd, capture_output=True, text=True, timeout=600)


def test_the_wheel_carries_prompts_models_and_samples(wheel):
    """Prompts, models.toml, the sample collection and the mark of a typed package are inside; tests and weights are not."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {f"graphrag_local/prompts/{p.name}" for p in (ROOT / "prompts").glob("*.md")} <= set(names)
    assert {"graphrag_local/models/models.toml", "graphrag_local/py.typed"} <= set(names)
    assert any(name.startswith("graphrag_local/samples/collection/") for name in names)
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".safetensors")]


def test_it_runs_from_another_folder(program, tmp_path):
    """`init`, `models list` and `status` work where no checkout is near, from the installed files alone."""
    assert run(program, "--version", cwd=tmp_path).stdout.strip() == "0.1.0"
    made = run(program, "init", "project", "--sample", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "project/graphrag.toml").is_file()
    assert list((tmp_path / "project/input").iterdir())
    listed = run(program, "models", "list", "--json", cwd=tmp_path)
    assert "smollm2-135m-instruct" in listed.stdout, listed.stderr


def test_it_imports_the_installed_package(program, tmp_path):
    """The installed code runs, not the checkout's."""
    python = program.parent / "python"
    shown = subprocess.run([str(python), "-c", "import graphrag_local; print(graphrag_local.__file__)"], cwd=tmp_path, capture_output=True, text=True)

    assert str(program.parent.parent) in shown.stdout
