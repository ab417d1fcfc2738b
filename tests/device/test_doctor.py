from cutaway.cli.doctor import fast_paths, hardware, speed


def test_doctor_sees_the_gpu():
    row = next(hardware.gpu())
    assert row.name == "cuda:0"
    assert row.facts["total"] >= row.facts["free"] > 0


def test_doctor_measures_the_gpu():
    row = next(speed.gpu())
    assert row.facts["TFLOP/s"] > 1
    assert row.facts["TB/s"] > 0.01


def test_doctor_finds_fused_attention_and_compiles_on_the_gpu():
    assert [row.status for row in fast_paths.attention()] == ["ok", "ok"]
    assert [row.name for row in fast_paths.compile_()] == ["compile, cpu", "compile, cuda"]
