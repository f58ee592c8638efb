"""What a row of one character costs; written by benchmarks/fit_runs.py."""

FIRST_RUN_CHARACTER = 32
"""The character that the first figure is of."""

RUN_COSTS_BY_FAMILY = {
    "o200k_base": (
        "aababadbbbaabaaaccccccccccaaaaaaaabbdbaddbddbbdbddddddddabddbdaadabbbbadbbdbabda"
        "ddbbddbdabddbdahhppppppppppppppppphhhpppphppppppadhhhhhhhhhhhdhhhhhhhhhdhhhhhhhh"
        "hhhhhhhhhhhhhhhhhhhhhhhhhhhphhhhhhhhdhhhhhhhhhhhhhhhhhdhhhhhdhhh"
    ),
    "cl100k_base": (
        "aadabaddbbaaaaaaccccccccccaaaaabbabbdbadddddbbddddddddddabddbdbadabbbbadddddddda"
        "ddddddddabddbdahhppppppppppppppppphpppppppppppppahhhhhhhhhhhhhhbhhhhhhhdphhhhhhh"
        "hhhhhpphphppphhphhphpphhpphphpphhhhhdhhhhhhhhhhhhhhhhhhphhhhhhpp"
    ),
    "tekken": (
        "addadbddddaddaaahhhhhhhhhhdddaddddddddbdddhhdddddhdddhhdbbdddddaddddddbddddddddd"
        "ddddddddbbdddbdhhpppppppppppppppppppppppppppppphdhphppphphhhphhphhhhhhpbphhhhhph"
        "hhhhhhphhhppphhpppphpphhpphphpphhhhhdhhhhhhhhhhhhhhhhhdphhhhhhhp"
    ),
    "max": (
        "addadbddddaddaaahhhhhhhhhhdddaddddddddbdddhhdddddhdddhhdbbdddddaddddddbddddddddd"
        "ddddddddbbdddddhhpppppppppppppppppppppppppppppppdhphppphphhhphhphhhhhhpdphhhhhph"
        "hhhhhpphphppphhpppphpphhpphphpphhhhhdhhhhhhhhhhhhhhhhhhphhhhhhpp"
    ),
}
"""By family: eighths of a token for one character of a row, `a` for one."""
