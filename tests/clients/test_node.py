"""The official JavaScript packages, each in a run of node's own test runner."""

import json
import os
import pathlib
import subprocess

import pytest
import scripts
from conftest import ROOT

FOLDER = pathlib.Path(__file__).parent / "node"


@pytest.mark.parametrize("package", ["openai", "ollama"])
def test_the_package_for_javascript(url, script_url, model, package):
    environment = {
        **os.environ,
        "NODE_PATH": str(ROOT / "target/clients-node/node_modules"),
        "GRISTMILL_URL": url,
        "GRISTMILL_SCRIPT_URL": script_url,
        "GRISTMILL_MODEL": model,
        "GRISTMILL_SCRIPTS": json.dumps(
            {name: getattr(scripts, name) for name in ("CALLS", "ZURICH", "BROKEN")}
        ),
    }
    command = ["node", "--test", "--test-reporter=tap", str(FOLDER / f"{package}.test.cjs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout and "# pass 0" not in done.stdout
