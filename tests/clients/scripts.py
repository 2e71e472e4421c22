"""Prompts that the scripted back-end plays."""

CALLS = "\n".join(
    [
        "reasoning hm, \\n",
        "reasoning so",
        "text Let me see.",
        "tool-start call_a weather",
        'tool-arguments {"zone": "Zürich",',
        'tool-arguments  "days": [1, 2.50]}',
        "tool-end",
        "tool call_b nothing {}",
        "usage 7 5 3 2",
    ]
)
ZURICH = '{"zone": "Zürich", "days": [1, 2.50]}'
CUT = "\n".join(["text so", "finish length"])
BROKEN = "\n".join(["text begun", "flush", "error upstream-error the server fell over"])
REFUSED = "error busy retry=1500 too many"
