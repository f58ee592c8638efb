"""The cost of a run of one character; written by benchmarks/fit_runs.py."""

FIRST_RUN_CHARACTER = 32
"""The character of the first figure."""

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
"""By family: eighths of a token for one character of a run; `a` is one eighth."""
