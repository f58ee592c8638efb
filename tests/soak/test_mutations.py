"""A fault that no longer applies proves nothing: the list must follow the code."""

from tests.soak.mutations import FAULTS, ROOT


def test_every_fault_applies_at_one_place():
    sources = ROOT / "packages/trimtab/src/trimtab"
    places = {
        fault.what: (sources / fault.file).read_text(encoding="utf-8").count(fault.old)
        for fault in FAULTS
    }
    assert {what: count for what, count in places.items() if count != 1} == {}


def test_every_law_has_faults_and_tests():
    laws = {fault.law for fault in FAULTS}
    assert laws == set(range(1, 10))
    assert all([*(ROOT / "tests" / "laws").glob(f"test_law_{law}_*.py")] for law in laws)
