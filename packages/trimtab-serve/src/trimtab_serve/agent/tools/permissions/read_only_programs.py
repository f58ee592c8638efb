"""Programs that are known to only read, with the options that they may be called with.

A program, an option or an abbreviation that is not listed here is unknown, so a call with it needs
approval. New programs, and options that write or run something, are therefore covered.

Add a line only if this holds on every system: no program of that name, called that way, writes a
file, runs another program or reads what its operands do not name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OptionNames = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyUsage:
    """How a program may be called without approval."""

    flags: str = ""
    """Short options without a value. Digits may follow one."""
    valued_flags: str = ""
    """Short options with a value, in the same word or in the next."""
    long_options: OptionNames = frozenset()
    """Long options, written in full, with or without a value."""
    other_options: re.Pattern[str] | None = None
    """Other words that may begin with a dash: `-5`, or the tests of `find`."""
    any_option: bool = False
    """Whether no option of the program writes a file or runs a program on any system."""
    min_operands: int = 0
    """Number of operands that it needs. With fewer, it would do something else."""
    max_operands: int | None = None
    """Maximum number of operands. With more, it would do something else. None means any number."""
    operand: re.Pattern[str] | None = None
    """The form that each operand must have."""
    first_operand: re.Pattern[str] | None = None
    """The form that the first operand must have. It is not a path."""
    searches: bool = False
    """Whether the first operand is a pattern and not a path, unless an option gives the pattern."""
    operands_are_texts: bool = False
    """Whether the operands are texts and not paths."""
    forbidden: re.Pattern[str] | None = None
    """The form that no word may contain."""
    runs_code: bool = False
    """Whether it runs code from the folder. Only a pattern that names the program then allows
    it."""


def _words(text: str) -> OptionNames:
    return frozenset(text.split())


_PURE = ReadOnlyUsage(any_option=True)
_SEARCH = ReadOnlyUsage(any_option=True, searches=True)
_TEXTS = ReadOnlyUsage(any_option=True, operands_are_texts=True)
# A file may name the files to read, wherever they are: `--files0-from`, or sums to be checked.
_COUNTS = ReadOnlyUsage(any_option=True, forbidden=re.compile(r"^--f"))
_SUMS = ReadOnlyUsage(any_option=True, forbidden=re.compile(r"^-(?:-c|[^-]*c)"))
_NUMBER = re.compile(r"-\d+")
_DIFF = """
abbrev abbrev-commit cached cc check color color-moved color-words combined-all-paths diff-algorithm
diff-filter dirstat exit-code find-copies find-copies-harder find-renames first-parent full-index
function-context histogram ignore-all-space ignore-blank-lines ignore-cr-at-eol ignore-space-at-eol
ignore-space-change ignore-submodules inter-hunk-context ita-invisible-in-index merge-base minimal
name-only name-status no-abbrev no-color no-ext-diff no-patch no-prefix no-renames no-textconv
numstat patch patch-with-stat patience pickaxe-all pickaxe-regex quiet raw relative shortstat staged
stat summary text unified word-diff
"""
_LOG = """
after all all-match ancestry-path author before boundary branches cherry-mark cherry-pick children
committer count date date-order decorate decorate-refs exclude expand-tabs extended-regexp
fixed-strings follow format full-history glob graph grep invert-grep left-only left-right max-count
max-parents merges min-parents no-decorate no-expand-tabs no-max-parents no-merges no-min-parents
no-notes no-walk notes oneline parents perl-regexp pretty regexp-ignore-case remotes reverse
right-only show-notes simplify-by-decoration simplify-merges since skip sparse tags topo-order until
"""
_GIT_DIFF = ReadOnlyUsage(
    flags="abcpqrstuwzBCDMRW", valued_flags="GSU", long_options=_words(_DIFF), other_options=_NUMBER
)
_SIGNED = re.compile(r"%[-+ ]?G")
_GIT_LOG = ReadOnlyUsage(
    flags="abcgimpqrstuwzBCDEFMPRW",
    valued_flags="nGSU",
    long_options=_words(_DIFF + _LOG),
    other_options=_NUMBER,
    # The format of a signature has it checked, by a program that the repository may name.
    forbidden=_SIGNED,
)
_LIST = ReadOnlyUsage(
    flags="alrvq",
    long_options=_words(
        "all color column list no-color no-column quiet remotes show-current verbose"
    ),
    max_operands=0,
)
_PYTEST = ReadOnlyUsage(
    flags="lqsvx",
    valued_flags="kmnr",
    long_options=_words(
        "capture co collect-only color disable-warnings durations durations-min exitfirst ff "
        "failed-first fixtures fixtures-per-test full-trace last-failed lf markers maxfail "
        "new-first nf no-header no-summary quiet runxfail setup-only setup-plan setup-show "
        "show-capture showlocals stepwise stepwise-skip strict-markers sw tb verbose verbosity"
    ),
    # A file of further options is read by its name after an @.
    operand=re.compile(r"[\w.].*"),
    runs_code=True,
)
_FIND = """
a amin anewer and atime cmin cnewer ctime d daystart depth empty executable false follow fstype gid
group H iname inum ipath iregex iwholename L links ls maxdepth mindepth mmin mount mtime name newer
newermt nogroup noleaf not nouser o or P path perm print print0 printf prune quit readable regex
regextype samefile size true type uid user wholename writable xdev xtype
"""
_ADDRESS = r"(?:\d+|\$|/[^/\\\[\n]*/I?)"
_SED = rf"(?:{_ADDRESS}(?:,[+~]?{_ADDRESS})?)?\s*(?:!?[dpq=]|s/[^/\\\[\n]*/[^/\\\n]*/[gpI\d]*)"

_ONLY_READ = """
arch cat cmp column comm cut df egrep expand false fgrep fold grep groups head hexdump id join ls nl
nproc od paste pwd readlink realpath rev stat sum tac tail true uname unexpand uptime which whoami
"""
_CHECKED = "b2sum cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum"
READ_ONLY_USAGES: dict[tuple[str, ...], ReadOnlyUsage] = {
    **{(name,): _PURE for name in _ONLY_READ.split()},
    **{(name,): _COUNTS for name in ("du", "wc")},
    **{(name,): _SUMS for name in _CHECKED.split()},
    **{(name,): _SEARCH for name in ("egrep", "fgrep", "grep")},
    **{(name,): _TEXTS for name in ("basename", "dirname", "echo", "seq", "tr")},
    ("cd",): ReadOnlyUsage(flags="LP", min_operands=1, max_operands=1),
    ("date",): ReadOnlyUsage(
        flags="uR",
        valued_flags="d",
        long_options=_words("date iso-8601 rfc-3339 rfc-email universal utc"),
        operand=re.compile(r"\+.*", re.DOTALL),
    ),
    ("diff",): ReadOnlyUsage(
        flags="abBdeEiNpqrstTuwyZ",
        valued_flags="CIUx",
        long_options=_words(
            "brief color context exclude expand-tabs ignore-all-space ignore-blank-lines "
            "ignore-case ignore-matching-lines ignore-space-change ignore-tab-expansion "
            "ignore-trailing-space left-column minimal new-file recursive report-identical-files "
            "show-c-function side-by-side strip-trailing-cr suppress-common-lines text unified "
            "width"
        ),
    ),
    ("file",): ReadOnlyUsage(
        flags="bhiLkr",
        long_options=_words("brief dereference extension mime mime-encoding mime-type"),
    ),
    ("find",): ReadOnlyUsage(
        other_options=re.compile(rf"-(?:{'|'.join(_FIND.split())}|O\d|\d+[a-zA-Z]?)"),
    ),
    ("rg",): ReadOnlyUsage(
        flags="0cFhHilLnNoPsSuUvVwxp.",
        valued_flags="ABCegjmtTM",
        long_options=_words(
            "after-context before-context case-sensitive color column context count count-matches "
            "files files-with-matches files-without-match fixed-strings follow glob heading hidden "
            "iglob ignore-case invert-match json line-number line-regexp max-columns max-count "
            "max-depth multiline no-filename no-heading no-ignore no-line-number only-matching "
            "pcre2 pretty regexp smart-case sort sortr stats trim type type-list type-not "
            "unrestricted vimgrep with-filename word-regexp"
        ),
        searches=True,
    ),
    ("sed",): ReadOnlyUsage(
        flags="nErsz",
        long_options=_words("debug null-data posix quiet regexp-extended separate silent"),
        min_operands=1,
        first_operand=re.compile(rf"{_SED}(?:\s*;\s*{_SED})*\s*"),
    ),
    ("sort",): ReadOnlyUsage(
        flags="bcCdfghiMmnRrsuVz",
        valued_flags="kt",
        long_options=_words(
            "check dictionary-order field-separator general-numeric-sort human-numeric-sort "
            "ignore-case ignore-leading-blanks key merge month-sort numeric-sort reverse stable "
            "unique version-sort zero-terminated"
        ),
    ),
    ("tree",): ReadOnlyUsage(
        flags="aACdDfFghiJlnNpqQrsStuUvxX",
        valued_flags="ILP",
        long_options=_words("dirsfirst du filelimit gitignore inodes noreport prune si"),
    ),
    ("uniq",): ReadOnlyUsage(
        flags="cdDiuz",
        valued_flags="fsw",
        long_options=_words(
            "all-repeated check-chars count ignore-case repeated skip-chars skip-fields "
            "unique zero-terminated"
        ),
        max_operands=1,
    ),
    ("git", "--version"): ReadOnlyUsage(max_operands=0),
    ("git", "blame"): ReadOnlyUsage(
        flags="bceflnpstwCM",
        valued_flags="L",
        long_options=_words(
            "abbrev date line-porcelain porcelain root show-email show-name show-number since"
        ),
    ),
    ("git", "branch"): _LIST,
    ("git", "cat-file"): ReadOnlyUsage(flags="epst"),
    ("git", "count-objects"): ReadOnlyUsage(flags="vH", max_operands=0),
    ("git", "describe"): ReadOnlyUsage(
        long_options=_words(
            "abbrev all always candidates contains dirty exact-match first-parent long match tags"
        ),
    ),
    ("git", "diff"): _GIT_DIFF,
    ("git", "grep"): ReadOnlyUsage(
        flags="acEFGhHiIlLnopPqvwWz",
        valued_flags="ABCem",
        long_options=_words(
            "after-context all-match and before-context basic-regexp break cached color column "
            "context count extended-regexp files-with-matches files-without-match fixed-strings "
            "full-name function-context heading ignore-case invert-match line-number max-count "
            "max-depth name-only no-color not only-matching or perl-regexp quiet recursive "
            "show-function text untracked word-regexp"
        ),
        searches=True,
    ),
    ("git", "log"): _GIT_LOG,
    ("git", "ls-files"): ReadOnlyUsage(
        flags="cdfikmorstuvz",
        long_options=_words(
            "cached deleted directory error-unmatch exclude exclude-standard full-name ignored "
            "modified no-empty-directory others stage unmerged"
        ),
    ),
    ("git", "ls-tree"): ReadOnlyUsage(
        flags="dlrtz", long_options=_words("abbrev full-name full-tree long name-only name-status")
    ),
    ("git", "merge-base"): ReadOnlyUsage(
        flags="a", long_options=_words("all fork-point is-ancestor octopus")
    ),
    ("git", "reflog"): ReadOnlyUsage(max_operands=0, other_options=_NUMBER, valued_flags="n"),
    ("git", "reflog", "show"): _GIT_LOG,
    ("git", "remote"): ReadOnlyUsage(flags="v", long_options=_words("verbose"), max_operands=0),
    ("git", "rev-list"): _GIT_LOG,
    ("git", "rev-parse"): ReadOnlyUsage(
        flags="q",
        long_options=_words(
            "abbrev-ref absolute-git-dir all branches git-dir is-bare-repository "
            "is-inside-git-dir is-inside-work-tree quiet remotes short show-cdup show-prefix "
            "show-toplevel symbolic symbolic-full-name tags verify"
        ),
    ),
    ("git", "shortlog"): ReadOnlyUsage(
        flags="ens",
        long_options=_words(
            "all author committer email group no-merges numbered since summary until"
        ),
        forbidden=_SIGNED,
    ),
    ("git", "show"): _GIT_LOG,
    ("git", "stash", "list"): ReadOnlyUsage(
        flags="p", long_options=_words("oneline stat"), max_operands=0
    ),
    ("git", "status"): ReadOnlyUsage(
        flags="bsuvz",
        other_options=re.compile(r"-u(?:no|normal|all)"),
        long_options=_words(
            "ahead-behind branch column find-renames ignore-submodules ignored long "
            "no-ahead-behind no-column no-renames porcelain renames short show-stash "
            "untracked-files verbose"
        ),
    ),
    ("git", "tag"): _LIST,
    ("git", "whatchanged"): _GIT_LOG,
    ("git", "worktree", "list"): ReadOnlyUsage(
        flags="vz", long_options=_words("porcelain verbose"), max_operands=0
    ),
    ("pytest",): _PYTEST,
    ("python", "-m", "pytest"): _PYTEST,
    ("python3", "-m", "pytest"): _PYTEST,
}
"""The allowed usages, by the words that name a program."""
PARTLY_KNOWN_PROGRAMS = frozenset(head[0] for head in READ_ONLY_USAGES if len(head) > 1)
"""Programs of which only some commands are known."""
