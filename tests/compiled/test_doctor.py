import shutil

import pytest

from cutaway.cli.doctor import fast_paths


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_doctor_compiles_where_there_is_a_compiler():
    (row, *_) = fast_paths.compile_()
    assert row.status == "ok", row
    assert row.facts["seconds"] > 0
