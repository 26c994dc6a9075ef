import os

from kernelpro.profiling.sass import candidate_files


def test_files_of_all_caches_are_given_newest_first(tmp_path, monkeypatch):
    made = {
        "TRITON_CACHE_DIR": ("triton", "abc/softmax.cubin"),
        "TORCH_EXTENSIONS_DIR": ("load_inline", "py312/own/own.so"),
        "TORCHINDUCTOR_CACHE_DIR": ("inductor", "triton/0/xyz/fused.cubin"),
    }
    for age, (variable, (kind, name)) in enumerate(made.items()):
        path = tmp_path / kind / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * age)
        os.utime(path, (1e9 - age, 1e9 - age))
        monkeypatch.setenv(variable, str(tmp_path / kind))
    (tmp_path / "triton/abc/softmax.ptx").write_text("")
    (tmp_path / "triton/abc/cuda_utils.cpython-312-x86_64.so").write_text("")
    (tmp_path / "triton/abc/folder.so").mkdir()
    calls = []
    found = candidate_files.collect(lambda: calls.append(1))
    assert calls == []
    assert [(f["kind"], f["bytes"]) for f in found["files"]] == [
        ("triton", 0),
        ("load_inline", 1),
        ("inductor", 2),
    ]
    assert found["files"][0]["path"] == str(tmp_path / "triton/abc/softmax.cubin")


def test_without_caches_there_are_no_files(monkeypatch):
    for variable in candidate_files.FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    assert candidate_files.collect(lambda: None) == {"files": [], "folders": []}
