"""Images: the pixels that were written, in one layout, from any container; and no container can lie about its size."""

import gzip
import io
import struct
import zipfile
import zlib

import numpy as np
import pytest
from helpers.data_samples import write
from helpers.limits import limits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from cutaway.data import images as module
from cutaway.data.images import idx_images, image_folder, npz_images, read_image
from cutaway.errors import InputError, MissingExtra

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def random_images(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def npz(path, compressed=True, **arrays):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


def encode(array, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def joined(files):
    data = np.frombuffer(b"".join(files), np.uint8)
    return {"jpeg_bytes": data, "offsets": np.cumsum([0, *map(len, files)])}


# --- idx --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@same_folder
@given(n=st.integers(1, 9), height=st.integers(1, 5), width=st.integers(1, 5))
def test_idx_written_is_idx_read(tmp_path_factory, suffix, n, height, width):
    folder = tmp_path_factory.mktemp("idx")
    pixels, labels = random_images(n, height, width), np.arange(n, dtype=np.uint8)
    images = idx_images(
        write(folder / f"images{suffix}", idx(pixels)),
        write(folder / f"labels{suffix}", idx(labels)),
        cache=folder / "cache",
    )
    assert images.pixels.dtype == np.uint8
    assert (images.pixels == pixels[:, None]).all()
    assert images.labels.tolist() == labels.tolist()
    assert images.names == tuple(map(str, range(n)))
    assert len(images) == n


def test_chunks_do_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr("cutaway.data.array_files.MEGABYTE", 50)
    pixels, labels = random_images(10, 4, 5), np.zeros(10, np.uint8)
    paths = write(tmp_path / "images.gz", idx(pixels)), write(tmp_path / "labels", idx(labels))
    assert (idx_images(*paths, cache=tmp_path / "cache").pixels == pixels[:, None]).all()
    path = npz(tmp_path / "a.npz", images=pixels, labels=labels)
    assert (npz_images(path, cache=tmp_path / "cache").pixels == pixels[:, None]).all()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (idx(random_images(4, 2, 2))[:-1], "truncated|does not fit"),
        (idx(random_images(4, 2, 2)) + b"x", "holds more than|does not fit"),
        (idx(random_images(4, 2, 2))[:9], "truncated in its header"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"x", "does not fit its size"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 1, 2**20, 2**20) + b"x" * (1 << 20), "does not fit|at most"),
        (bytes([0, 0, 13, 3]) + struct.pack(">3I", 1, 1, 1) + b"xxxx", "not an idx file of bytes with 3 axes"),
        (idx(random_images(4, 2, 2, 3)), "not an idx file of bytes with 3 axes"),
        (idx(random_images(5, 2, 2)), r"images.* has 5 images, .*labels.* has 4 labels"),
        (idx(random_images(4, 0, 2)), "holds no images"),
        (b"\xff\xd8\xff", "not an idx file"),
    ],
)
def test_idx_that_lies_is_refused(tmp_path, suffix, data, message):
    paths = write(tmp_path / f"images{suffix}", data), write(tmp_path / "labels", idx(np.zeros(4, np.uint8)))
    with limits(20, 256), pytest.raises(InputError, match=message) as error:
        idx_images(*paths, cache=tmp_path / "cache")
    assert "images" in str(error.value)


# --- npz --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.dtype(">i4")])
@pytest.mark.parametrize(
    ("shape", "to_ours"),
    [
        ((6, 4, 5), lambda x: x[:, None]),
        ((6, 4, 5, 3), lambda x: x.transpose(0, 3, 1, 2)),
        ((6, 4, 5, 1), lambda x: x.transpose(0, 3, 1, 2)),
        ((6, 3, 4, 5), lambda x: x),
    ],
)
def test_npz_written_is_npz_read(tmp_path, compressed, kind, shape, to_ours):
    pixels, labels = random_images(*shape), np.array([2, 0, 1, 2, 0, 1], kind)
    path = npz(tmp_path / "a.npz", compressed, images=pixels, labels=labels)
    images = npz_images(path, cache=tmp_path / "cache")
    assert (images.pixels == to_ours(pixels)).all()
    assert images.labels.tolist() == labels.tolist()
    assert images.names == ("0", "1", "2")


def test_encoded_images_in_npz(tmp_path):
    pixels = random_images(40, 6, 7, 3)
    path = npz(tmp_path / "a.npz", labels=np.arange(40), **joined([encode(image) for image in pixels]))
    images = npz_images(path, cache=tmp_path / "cache")
    assert (images.pixels == pixels.transpose(0, 3, 1, 2)).all()
    grey = npz_images(path, size=4, channels=1, cache=tmp_path / "cache")
    assert grey.pixels.shape == (40, 1, 4, 4)
    assert grey.fingerprint != images.fingerprint


def npy(shape, data=b"", descr="|u1", by_column=False):
    head = repr({"descr": descr, "fortran_order": by_column, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


ONE = {"images.npy": npy((1, 2, 2), b"abcd"), "labels.npy": npy((1,), b"\0")}
FOUR = {"labels.npy": ONE["labels.npy"], "jpeg_bytes.npy": npy((4,), b"abcd")}
HUGE = 10**12


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({**ONE, "images.npy": npy((HUGE, 2, 2), b"abcd")}, "does not fit its"),
        ({**ONE, "labels.npy": npy((HUGE,), b"\0")}, "does not fit its"),
        ({**ONE, "labels.npy": npy((-1,), b"\0")}, "labels .*arrays of numbers"),
        ({**ONE, "images.npy": npy((1, 2, 2), b"abc")}, "does not fit its"),
        ({**ONE, "images.npy": npy((1, 2, 2), b"abcd", by_column=True)}, "row by row"),
        ({**ONE, "images.npy": npy((1, 2, 2), b"\x80\x04." * 9, "|O")}, "arrays of numbers"),
        ({**ONE, "images.npy": npy((1, 2, 2), bytes(16), "<f4")}, "float32 of shape .*; bytes of image"),
        ({**ONE, "images.npy": npy((1, 1, 2, 2, 1), b"abcd")}, "bytes of image"),
        ({**ONE, "images.npy": npy((1, 2, 2, 2), b"abcdabcd")}, "no axis of 1 or 3 channels"),
        ({**ONE, "images.npy": npy((2, 2, 2), b"abcdabcd")}, "has 2 images, its labels has 1"),
        ({**ONE, "images.npy": npy((), b"a")}, "has 0 images"),
        ({**ONE, "labels.npy": npy((1, 1), b"\0")}, "a one-dimensional array of integers, not uint8 of shape"),
        ({**ONE, "labels.npy": npy((1,), b"\xff", "|i1")}, "numbers from 0 up are expected"),
        ({**ONE, "images.npy": b"no array"}, "images in .* cannot be read"),
        ({"images.npy": ONE["images.npy"]}, "no array 'labels'; there are images"),
        ({"labels.npy": ONE["labels.npy"]}, "no array 'offsets'; there are labels"),
        ({**FOUR, "offsets.npy": npy((2,), b"\0\3")}, "must rise from 0 to 4"),
        ({**FOUR, "offsets.npy": npy((2,), b"\1\4")}, "must rise from 0 to 4"),
        ({**FOUR, "labels.npy": npy((2,), b"\0\0"), "offsets.npy": npy((3,), b"\0\5\4")}, "must rise from 0 to 4"),
        ({**FOUR, "offsets.npy": npy((2,), b"\0\4")}, "image 0 cannot be read as an image"),
    ],
)  # fmt: skip
def test_npz_that_lies_is_refused(tmp_path, members, message):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with limits(20, 256), pytest.raises(InputError, match=message) as error:
        npz_images(path, cache=tmp_path / "cache")
    assert "a.npz" in str(error.value)


def test_an_archive_that_lies_about_a_member_is_refused(tmp_path):
    path = npz(tmp_path / "a.npz", images=np.zeros((2, 50, 50), np.uint8), labels=np.zeros(2, np.uint8))
    data = path.read_bytes()
    size = struct.pack("<I", 128 + 5000)
    assert data.count(size) >= 1
    lie = data.replace(size, struct.pack("<I", 128 + 50 * 50 * 2000)).replace(b"(2, 50, 50)", b"(2000,50,50)"[:11])
    path.write_bytes(lie)
    with limits(20, 256), pytest.raises(InputError, match=r"a\.npz"):
        npz_images(path, cache=tmp_path / "cache")
    for cut in (10, len(data) // 2, len(data) - 10):
        path.write_bytes(data[:cut])
        with pytest.raises(InputError, match=r"a\.npz is not an npz archive"):
            npz_images(path, cache=tmp_path / "cache")


def test_a_flipped_byte_in_npz_is_found(tmp_path):
    pixels = random_images(1, 50, 50)
    path = npz(tmp_path / "a.npz", compressed=False, images=pixels, labels=np.zeros(1, np.uint8))
    data = bytearray(path.read_bytes())
    data[data.index(pixels.tobytes()) + 1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"images in .*a\.npz cannot be read: Bad CRC-32"):
        npz_images(path, cache=tmp_path / "cache")


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Two classes of three images."""
    pixels = random_images(6, 5, 4, 3)
    for i, image in enumerate(pixels):
        write(tmp_path / "flowers" / ("tulip", "rose")[i // 3] / f"{9 - i}.png", encode(image))
    write(tmp_path / "flowers" / "rose" / ".hidden", b"not an image")
    return tmp_path / "flowers", pixels


def test_a_folder_of_classes(folder, tmp_path):
    path, pixels = folder
    images = image_folder(path, cache=tmp_path / "cache")
    assert images.names == ("rose", "tulip")
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (images.pixels == pixels[::-1].transpose(0, 3, 1, 2)).all()


def test_the_second_time_nothing_is_decoded(folder, tmp_path, monkeypatch):
    first = image_folder(folder[0], cache=tmp_path / "cache")
    monkeypatch.setattr(module, "_decode", lambda *_, **__: pytest.fail("decoded again"))
    second = image_folder(folder[0], cache=tmp_path / "cache")
    assert (first.pixels == second.pixels).all()
    assert first.fingerprint == second.fingerprint


def test_a_class_of_another_name_is_another_folder(folder, tmp_path):
    first = image_folder(folder[0], cache=tmp_path / "cache")
    (folder[0] / "rose").rename(folder[0] / "violet")
    second = image_folder(folder[0], cache=tmp_path / "cache")
    assert second.names == ("tulip", "violet")
    assert first.fingerprint != second.fingerprint


def test_all_come_to_one_size_when_asked(folder, tmp_path):
    path, _ = folder
    write(path / "rose" / "0.jpg", encode(random_images(40, 30), "JPEG"))
    with pytest.raises(
        InputError, match=r"rose/4\.png has 5 × 4 pixels, the first image 40 × 30: .*data.image_size=64"
    ):
        image_folder(path, cache=tmp_path / "cache")
    images = image_folder(path, size=(8, 6), channels=3, cache=tmp_path / "cache")
    assert images.pixels.shape == (7, 3, 8, 6)
    assert (images.pixels[0, 0] == images.pixels[0, 1]).all(), "a grey image has three equal channels"
    assert image_folder(path, size=8, cache=tmp_path / "cache").pixels.shape == (7, 1, 8, 8), "as the first"


def test_what_a_system_leaves_in_a_folder_is_no_picture(folder, tmp_path):
    path, _ = folder
    before = image_folder(path, cache=tmp_path / "cache")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", ".cache/a.png"):
        write(path / "rose" / name, b"not a picture")
    assert image_folder(path, cache=tmp_path / "cache").fingerprint == before.fingerprint
    write(path / "rose" / "notes.txt", b"not a picture")
    with pytest.raises(InputError, match=r"notes.txt is not an image .*: take it out"):
        image_folder(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_ink_on_glass_is_read_as_on_white_paper(tmp_path, mode):
    glass = np.zeros((6, 8, 4), np.uint8)
    glass[2:4, 3:5, 3] = 255  # black, and seen through everywhere else
    for name in ("a", "b"):
        (tmp_path / "glass" / name).mkdir(parents=True)
        Image.fromarray(glass).convert(mode).save(tmp_path / "glass" / name / "ink.png")
    pixels = image_folder(tmp_path / "glass", cache=tmp_path / "cache").pixels
    assert (pixels[..., 2:4, 3:5] == 0).all()
    assert (pixels == 255).mean() == 44 / 48


def test_the_middle_is_cut_out(tmp_path):
    image = np.zeros((10, 30), np.uint8)
    image[:, 10:20] = 255
    write(tmp_path / "f" / "a" / "1.png", encode(image))
    images = image_folder(tmp_path / "f", size=10, cache=tmp_path / "cache")
    assert images.pixels.min() == 255


def bomb(height, width):
    """A PNG of a few bytes that says it is this large."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")


WHOLE = encode(random_images(30, 30, 3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bomb(50_000, 50_000), "pixels"),
        (bomb(10_000, 9_000), "pixels|Image size"),
        (bomb(10_000, 7_000), "has 10000 × 7000 pixels; at most 67,108,864 are read"),
        (WHOLE[: len(WHOLE) // 2], "cannot be read as an image"),
        (b"<svg></svg>", "cannot be read as an image"),
        (encode(random_images(5, 4).astype(np.uint16) * 256), "more than 8 bits"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "cannot be read as an image"),
    ],
)
def test_what_is_no_image_is_named(folder, tmp_path, data, message):
    write(folder[0] / "rose" / "5.png", data)
    with limits(20, 256), pytest.raises(InputError, match=rf"rose/5\.png.*({message})"):
        image_folder(folder[0], cache=tmp_path / "cache")


def test_an_image_of_as_many_pixels_as_are_read_at_most(tmp_path):
    """In the file and in what it is made into: two to the power of 26."""
    path = write(tmp_path / "a.png", encode(np.eye(1, 8192, dtype=np.uint8).repeat(8192, axis=0)))
    found = read_image(path, size=8192)
    assert found.shape == (1, 8192, 8192)
    assert (found[0, :, :2] == (1, 0)).all()
    path = write(tmp_path / "b.png", encode(np.zeros((8193, 8192), np.uint8)))
    with pytest.raises(InputError, match=r"b\.png has 8193 × 8192 pixels; at most 67,108,864 are read"):
        read_image(path, size=2)
    with pytest.raises(InputError, match=r"size=\(8193, 8192\): a height and a width, at most 67,108,864 pixels"):
        read_image(path, size=(8193, 8192))


def test_folders_that_are_none(folder, tmp_path):
    path, _ = folder
    with pytest.raises(InputError, match="absent is not a folder"):
        image_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="rose has no folders: give one that has a folder of images for each class"):
        image_folder(path / "rose")
    (path / "lily").mkdir()
    with pytest.raises(InputError, match="lily has no images"):
        image_folder(path)
    write(path / "lily" / "about.txt", "lilies")
    with pytest.raises(InputError, match=r"about\.txt is not an image"):
        image_folder(path)


def test_options_that_make_no_sense_are_refused(folder, tmp_path):
    for options in ({"size": 0}, {"size": (9, -1)}, {"size": 10**6}, {"channels": 2}):
        with pytest.raises(InputError, match=next(iter(options))):
            image_folder(folder[0], **options, cache=tmp_path / "cache")
    path = npz(tmp_path / "a.npz", images=random_images(2, 3, 3), labels=np.array([0, 5]))
    with pytest.raises(InputError, match="size and channels are for encoded images"):
        npz_images(path, size=2, cache=tmp_path / "cache")


def test_without_pillow_the_extra_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="'pillow' of the extra 'images'"):
        image_folder(folder[0], cache=tmp_path / "cache")


@pytest.mark.parametrize("kind", [np.uint64, np.dtype("<i8")])
def test_a_label_of_a_class_that_nobody_has_is_refused(tmp_path, kind):
    """A name for each of its 2⁴⁰ classes would take 100 terabytes."""
    path = npz(tmp_path / "a.npz", images=random_images(2, 3, 3), labels=np.array([0, 1 << 40], kind))
    with limits(20, 256), pytest.raises(InputError, match=r"a\.npz: the label 1,099,511,627,776 is none of at most"):
        npz_images(path, cache=tmp_path / "cache")
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.suffix != ".lock"]


def test_labels_are_not_unpacked_before_there_are_as_many_images(tmp_path):
    n = 1 << 29
    images, labels = tmp_path / "images", tmp_path / "labels.gz"
    images.write_bytes(idx(random_images(4, 2, 2)))
    with gzip.open(labels, "wb") as file:
        file.write(bytes([0, 0, 8, 1]) + struct.pack(">I", n))
        for _ in range(n >> 24):
            file.write(bytes(1 << 24))
    with limits(20, 256), pytest.raises(InputError, match=r"images has 4 images, .*labels\.gz has 536,870,912 labels"):
        idx_images(images, labels, cache=tmp_path / "cache")


@pytest.mark.parametrize("other", ["images", "jpeg_bytes"])
def test_packed_labels_are_not_unpacked_before_there_are_as_many_images(tmp_path, other):
    arrays = {"images": random_images(4, 2, 2)} if other == "images" else joined([encode(random_images(3, 3))] * 4)
    path = npz(tmp_path / "a.npz", labels=np.zeros(1 << 25, np.int64), **arrays)
    assert path.stat().st_size < 1 << 20
    with limits(20, 128), pytest.raises(InputError, match=r"a\.npz has 4 images, its labels has 33,554,432 labels"):
        npz_images(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("fault", [AssertionError(), OverflowError("size"), IndexError("palette"), KeyError(3)])
def test_whatever_pillow_raises_is_an_error_that_names_the_image(folder, tmp_path, monkeypatch, fault):
    def broken(*_, **__):
        raise fault

    monkeypatch.setattr("PIL.Image.open", broken)
    with pytest.raises(InputError, match=r"rose/4\.png cannot be read as an image: ."):
        image_folder(folder[0], cache=tmp_path / "cache")
