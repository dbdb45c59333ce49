"""Series out of files: what is read, and by which words the rest is refused."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from statewise.data.date_format import date_format
from statewise.data.series import Series, make_series, read_series
from statewise.data.series_preprocessing import with_time_features
from statewise.data.split import split_last
from statewise.specs import UserError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "data.csv"
        path.write_bytes(text.encode())
        return path

    return write


PLAIN = "date,a,b\n2020-01-01 00:00:00,1,10\n2020-01-01 01:00:00,2.5,\n2020-01-01 02:00:00,-3e-1,NaN\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace("\n", "\n\n"),
        PLAIN.replace("NaN", " NA "),
        PLAIN.replace("-01-01", "/1/1"),
        PLAIN.replace(":00:00", ":00"),
        PLAIN.replace("date", "Timestamp").replace("2020-01-01 0", "2020-01-01T0"),
    ],
)
def test_a_table_in_many_dresses(write: Write, text: str) -> None:
    (series,) = read_series(write(text))
    assert series.channels == ("a", "b")
    assert series.id == "data"
    assert np.isnan(series.values_TC).sum() == 2
    np.testing.assert_array_equal(series.values_TC, [[1, 10], [2.5, np.nan], [-0.3, np.nan]])
    np.testing.assert_array_equal(series.time_T, np.arange(3) * np.timedelta64(1, "h") + np.datetime64("2020-01-01"))


def test_gzip_and_zones(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"time,v\n2020-01-01T01:00:00+01:00,1\n2020-01-01T02:00:00+01:00,2\n"))
    (series,) = read_series(path)
    assert series.id == "x"
    assert series.time_T[0] == np.datetime64("2020-01-01")


def test_columns_by_name(write: Write) -> None:
    text = "shop,when,temperature,sold\nA,1,20,5\nB,1,21,6\nA,2,22,7\nB,2,23,8\n"
    a, b = read_series(write(text), time="when", id="shop", targets=["sold"], covariates=["temperature"])
    assert (a.id, b.id) == ("A", "B")
    np.testing.assert_array_equal(a.values_TC[:, 0], [5, 7])
    np.testing.assert_array_equal(b.covariates_TX[:, 0], [21, 23])
    np.testing.assert_array_equal(b.time_T, [1.0, 2.0])


def test_no_time_column_is_the_row(write: Write) -> None:
    (series,) = read_series(write("date,v\n5,1\n3,2\n"), time="none")
    assert series.channels == ("date", "v")
    np.testing.assert_array_equal(series.time_T, [0, 1])


def test_dates_without_a_mark_between_and_numbers_that_look_like_them(write: Write) -> None:
    (dates,) = read_series(write("date,v\n20200131,1\n20200201,2\n"))
    assert dates.time_T[1] == np.datetime64("2020-02-01")
    (numbers,) = read_series(write("time,v\n20209901,1\n20209902,2\n"))
    assert numbers.time_T.dtype == np.float64


def test_months_are_one_step(write: Write) -> None:
    rows = "".join(f"2020-{month:02},{month}\n" for month in range(1, 13))
    assert len(read_series(write("date,v\n" + rows))[0]) == 12
    ends = "2020-01-31,1\n2020-02-29,2\n2020-03-31,3\n2020-05-31,5\n2020-06-30,6\n"
    (filled,) = read_series(write("date,v\n" + ends), irregular="fill")
    np.testing.assert_array_equal(filled.values_TC[:, 0], [1, 2, 3, np.nan, 5, 6])
    assert filled.time_T[3] == np.datetime64("2020-04-30")


def test_holes_are_filled_or_kept(write: Write) -> None:
    path = write("t,v,x\n0,1,1\n1,2,2\n4,3,3\n5,4,4\n")
    options: dict[str, Any] = {"time": "t", "targets": ["v"], "covariates": ["x"]}
    (kept,) = read_series(path, irregular="keep", **options)
    assert len(kept) == 4
    (filled,) = read_series(path, irregular="fill", **options)
    np.testing.assert_array_equal(filled.values_TC[:, 0], [1, 2, np.nan, np.nan, 3, 4])
    np.testing.assert_array_equal(filled.time_T, np.arange(6.0))
    (forward,) = read_series(path, irregular="fill", missing="forward", **options)
    np.testing.assert_array_equal(forward.values_TC[:, 0], [1, 2, 2, 2, 3, 4])
    np.testing.assert_array_equal(forward.covariates_TX[:, 0], [1, 2, 2, 2, 3, 4])


@pytest.mark.parametrize(("repeated", "value"), [("first", 2.0), ("last", 3.0)])
def test_a_clock_that_is_set_back(write: Write, repeated: Any, value: float) -> None:
    """Two o'clock comes twice; which one holds is said, or the file is refused."""
    path = write("date,v\n2020-10-25 01:00,1\n2020-10-25 02:00,2\n2020-10-25 02:00,3\n2020-10-25 03:00,4\n")
    with pytest.raises(
        UserError, match=r"lines 3 and 4 have the same time 2020-10-25T02:00:00\n.*data.repeated.: .first"
    ):
        read_series(path)
    (series,) = read_series(path, repeated=repeated)
    np.testing.assert_array_equal(series.values_TC[:, 0], [1, value, 4])


def test_decimal_commas_where_they_cannot_be_anything_else(write: Write) -> None:
    (series,) = read_series(write("Datum;a;b\n01.02.2020;1.234,5;7\n02.02.2020;-0,25;1.000\n"))
    np.testing.assert_array_equal(series.values_TC, [[1234.5, 7], [-0.25, 1000]])
    assert series.time_T[1] == np.datetime64("2020-02-02")
    (small,) = read_series(write("a;b\n107,890;1,000\n0,125;2,000\n"))
    np.testing.assert_array_equal(small.values_TC, [[107.89, 1], [0.125, 2]])


def test_a_decimal_comma_can_be_said(write: Write) -> None:
    path = write("a;b\n107,890;1.250\n99,5;2,000\n")
    np.testing.assert_array_equal(read_series(path, decimal=",")[0].values_TC, [[107.89, 1250], [99.5, 2]])
    quoted = write('a,b\n"107,890",1\n"99,125",2\n')
    np.testing.assert_array_equal(read_series(quoted, decimal=",")[0].values_TC, [[107.89, 1], [99.125, 2]])
    with pytest.raises(UserError, match=r"holds '107,890', which is not a number\n.*data.decimal.: .,"):
        read_series(quoted)
    with pytest.raises(UserError, match=r"holds '1\.5', but decimals of this table have a comma"):
        read_series(write("a;b\n1,5;1.5\n"), decimal=",")


@pytest.mark.parametrize(
    ("cells", "first", "after", "written"),
    [
        (["31.12.2019", "01.01.2020"], "2019-12-31", "2020-01-02", "02.01.2020"),
        (["12/31/2019", "01/01/2020"], "2019-12-31", "2020-01-02", "01/02/2020"),
        (["31/12/2019 05:00", "01/01/2020 05:00"], "2019-12-31T05:00", "2020-01-02T05:00", "02/01/2020 05:00"),
        (["2019/12/31", "2020/01/01"], "2019-12-31", "2020-01-02", "2020/01/02"),
        (["20191231", "20200101"], "2019-12-31", "2020-01-02", "20200102"),
        (["2019-11", "2019-12"], "2019-11-01", "2020-01-01", "2020-01"),
        (["2019Q3", "2019Q4"], "2019-07-01", "2020-01-01", "2020Q1"),
        (
            ["2019-12-31T01:00+02:00", "2020-01-01T01:00+02:00"],
            "2019-12-30T23:00",
            "2020-01-01T23:00",
            "2020-01-02T01:00+02:00",
        ),
        (
            ["2019-12-31 01:00:00Z", "2020-01-01 01:00:00Z"],
            "2019-12-31T01:00",
            "2020-01-02T01:00",
            "2020-01-02 01:00:00Z",
        ),
    ],
)
def test_dates_are_read_and_written_in_their_own_style(
    write: Write, cells: list[str], first: str, after: str, written: str
) -> None:
    rows = "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))
    (series,) = read_series(write(f"when,v\n{rows}"), time="when" if cells[0].isdigit() else None)
    assert series.channels == ("v",), "a column of dates is the time, whatever its name"
    assert series.time_T[0] == np.datetime64(first)
    assert date_format(cells).format(np.datetime64(after, "us")) == written


def test_a_number_is_no_date(write: Write) -> None:
    (series,) = read_series(write("a,b\n2019.5,1\n2020.1,2\n"))
    assert series.channels == ("a", "b")


def test_a_date_that_may_be_two_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"data.csv:2: time '01/02/2020' may have its day first or its month"):
        read_series(write("date,v\n01/02/2020,1\n02/02/2020,2\n"))


def test_sorted_on_demand(write: Write) -> None:
    (series,) = read_series(write("t,v\n3,30\n1,10\n2,20\n"), time="t", unsorted="sort")
    np.testing.assert_array_equal(series.values_TC[:, 0], [10, 20, 30])


def test_missing_before_the_first_value_stays_missing(write: Write) -> None:
    (series,) = read_series(write("v,w\n,1\n2,\n,\n"), missing="forward")
    np.testing.assert_array_equal(series.values_TC, [[np.nan, 1], [2, 1], [2, 1]])


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "no rows"),
        ("a,b\n", {}, "no rows"),
        ("1,2\n3,4\n", {}, "names of the columns"),
        ("a,b\n1,2\n3\n", {}, "data.csv:3 has 1 cells"),
        ("a,b\n1,2\n3,4,5\n", {}, "data.csv:3 has 3 cells"),
        ("a,a\n1,2\n", {}, "two columns are called 'a'"),
        ("a,b\n1,2\n3,x\n", {}, "data.csv:3: column 'b' holds 'x'"),
        ("a;b\n1,234;2\n", {}, "decimals with a point"),
        ("a;b\n1,5;2.5\n", {}, "decimals with a point"),
        ('a,b\n"1,5",2\n', {}, "decimals with a point"),
        ('a,b\n"1,234.5",2\n', {}, "mark between thousands"),
        ("a,b\n1_000,2\n", {}, "'1_000', which is not a number"),
        ("a,b\n1,inf\n", {}, "'inf', which is not a number"),
        ("a,b\n1,1e999\n", {}, "too large"),
        ("a,b\n1,2\n1,1e200\n", {}, "data.csv:3: column 'b' holds '1e200', too large to be squared"),
        ("a,b\n1,\u0663\n", {}, "not a number"),
        ("a,b\n1,2\n", {"time": "when"}, "no column 'when'"),
        ("a,b\n1,2\n", {"targets": ["c", "b"]}, "no column 'c'"),
        ("a,b\n1,2\n", {"targets": ["B"]}, 'if the target is in \'b\': settings={"data.targets": "b"}'),
        ("a,b\n1,2\n", {"targets": ["b"], "covariates": ["b"]}, "two purposes"),
        (",b\n0,2\n", {}, "column 1 has no name"),
        ("date,v\n2020-01-01,1\n01/02/2020,2\n", {}, "data.csv:3: time '01/02/2020'"),
        ("date,v\n2020-01-01,1\n,2\n", {}, "it is empty"),
        ("date,v\n2020-01-01 00:00,1\n2020-01-01T01:00Z,2\n", {}, "have a zone"),
        ("t,v\n1,1\n3,2\n2,3\n", {"time": "t"}, "data.csv:4: time 2 comes after 3"),
        ("t,v\n1,1\n2,2\n1,3\n", {"time": "t"}, "lines 2 and 4 have the same time 1"),
        ("t,v\n1,1\n2,2\n3,2\n5,3\n", {"time": "t"}, "data.csv:5: from 3 to 5"),
        ("t,v\n1,1\n2,2\n3,2\n4.5,3\n", {"time": "t", "irregular": "fill"}, "no grid to fill"),
        ("s,v\nA,1\n,2\n", {"id": "s"}, "data.csv:3: column 's' is empty"),
        ("a,b\n1,2\n3,\n", {"missing": "refuse"}, "1 values are missing, the first at 1 in 'b'"),
        ('a,b\n1,"2\n', {}, "data.csv:2 is not CSV"),
        ("a,b\n1,\0\n", {}, "binary"),
        ("date\n2020-01-01\n", {}, "no column left"),
    ],
)
def test_refused_by_place(write: Write, text: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        read_series(write(text), **options)
    assert words in str(caught.value)


def test_a_line_after_a_cell_of_two_lines_keeps_its_number(write: Write) -> None:
    with pytest.raises(UserError, match=r"data\.csv:4: column 'v'"):
        read_series(write('id,v\n"a\nb",1\nc,x\n'), id="id")


def test_files_that_are_not_there_or_not_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_series(tmp_path / "absent.csv")
    with pytest.raises(UserError, match="not a known format of series"):
        read_series(tmp_path / "table.xlsx")
    latin = tmp_path / "latin.csv"
    latin.write_bytes("a,temp\xe9rature\n1,2\n".encode("latin1"))
    with pytest.raises(UserError, match=r"latin\.csv:1 is not UTF-8"):
        read_series(latin)
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"a,b\n1,2\n" * 99)[:-9])
    with pytest.raises(UserError, match="is damaged gzip"):
        read_series(broken)


def test_several_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("v,w\n1,2\n")
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    assert [series.id for series in read_series(paths)] == ["one", "two"]
    paths[1].write_text("v,z\n1,2\n")
    with pytest.raises(UserError, match="the same columns"):
        read_series(paths)


def test_numpy_files(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 5, 2))
    np.save(tmp_path / "many.npy", values)
    many = read_series(tmp_path / "many.npy")
    assert [series.id for series in many] == ["0", "1", "2"]
    np.testing.assert_array_equal(many[1].values_TC, values[1])
    np.save(tmp_path / "flat.npy", np.arange(4, dtype=np.int16))
    assert read_series(tmp_path / "flat.npy")[0].values_TC.shape == (4, 1)
    np.savez(tmp_path / "named.npz", values=values[0], time=np.arange(5.0), covariates=values[0, :, :1])
    (named,) = read_series(tmp_path / "named.npz")
    np.testing.assert_array_equal(named.covariates_TX, values[0, :, :1])
    np.savez(tmp_path / "each.npz", train=values[0], test=values[1, :3])
    assert [(series.id, series.part) for series in read_series(tmp_path / "each.npz")] == [
        ("train", "train"),
        ("test", "test"),
    ]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array(["a"]), "expected numbers"),
        (np.array([1.0, np.inf]), "infinite"),
        (np.zeros((0, 2)), "hold nothing"),
        (np.array([{}]), "not a NumPy file of plain arrays"),
        (np.zeros((2, 2, 2, 2)), "expected numbers"),
    ],
)
def test_arrays_refused(tmp_path: Path, array: Any, words: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(UserError, match=words):
        read_series(tmp_path / "x.npy")


def test_piano_rolls(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rolls = {
        name: [(generator.random((length, 88)) < 0.05).astype(np.uint8) for length in lengths]
        for name, lengths in {"traindata": (5, 9), "validdata": (4, 7), "testdata": (3, 8)}.items()
    }
    cells = {}
    for name, some in rolls.items():
        cells[name] = np.empty((1, len(some)), dtype=object)
        cells[name][0, :] = some
    savemat(tmp_path / "music.mat", cells)
    series = read_series(tmp_path / "music.mat")
    assert [one.part for one in series] == ["train"] * 2 + ["validation"] * 2 + ["test"] * 2
    assert series[1].id == "traindata/1"
    np.testing.assert_array_equal(series[5].values_TC, rolls["testdata"][1])
    (tmp_path / "bad.mat").write_bytes(b"nonsense" * 100)
    with pytest.raises(UserError, match="not a MATLAB file"):
        read_series(tmp_path / "bad.mat")


def hourly(length: int = 24 * 40) -> Series:
    time_T = np.datetime64("2021-12-30T00:00:00", "us") + np.arange(length) * np.timedelta64(1, "h")
    return make_series(np.zeros(length), time=time_T)


def test_time_features_against_the_standard_library() -> None:
    series = with_time_features(hourly(), ["hour", "weekday", "day", "month", "t"], until=480)
    assert series.covariates == ("hour", "weekday", "day", "month", "t")
    for row in (0, 1, 23, 24, 47, 48, 500, 959):
        moment = series.time_T[row].item()
        expected = [
            moment.hour / 23 - 0.5,
            moment.weekday() / 6 - 0.5,
            (moment.day - 1) / 30 - 0.5,
            (moment.month - 1) / 11 - 0.5,
            row / 480,
        ]
        np.testing.assert_allclose(series.covariates_TX[row], expected, rtol=0, atol=1e-12)


def test_time_features_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'hour'"):
        with_time_features(hourly(), ["hours"])
    with pytest.raises(UserError, match="no calendar"):
        with_time_features(make_series(np.zeros(5)), ["hour"])
    with pytest.raises(UserError, match="already has"):
        with_time_features(with_time_features(hourly(), ["t"]), ["t"])


# ------------------------------------------------------------------ other layouts


def test_a_table_without_names(write: Write) -> None:
    path = write("2024-01-01,1,10\n2024-01-02,2,20\n2024-01-03,,30\n")
    with pytest.raises(UserError, match=r"holds values, where the names.*\n.*data\.header"):
        read_series(path)
    (series,) = read_series(path, header="no")
    assert series.channels == ("column 2", "column 3")
    assert len(series) == 3
    assert series.time_T[0] == np.datetime64("2024-01-01")
    np.testing.assert_equal(series.values_TC, [[1, 10], [2, 20], [np.nan, 30]])
    assert read_series(write("1;2,5\n3;4,5\n"), header="no")[0].values_TC.tolist() == [[1, 2.5], [3, 4.5]]


def test_a_series_a_line_as_m4_writes_them(write: Write) -> None:
    path = write('"V1","V2","V3","V4","V5"\n"H1","605","586","",""\n"H2","3.5","","4","5"\n')
    first, second = read_series(path, layout="rows")
    assert (first.id, second.id, first.channels) == ("H1", "H2", ("value",))
    assert first.values_TC[:, 0].tolist() == [605, 586]
    np.testing.assert_equal(second.values_TC[:, 0], [3.5, np.nan, 4, 5])
    numbered = read_series(write("1,2,3\n4,5\n"), layout="rows", header="no")
    assert [(one.id, one.values_TC[:, 0].tolist()) for one in numbered] == [("0", [1, 2, 3]), ("1", [4, 5])]
    with pytest.raises(UserError, match=r":3: column 'value' holds 'x'"):
        read_series(write("a,b\nH1,1\nH2,x\n"), layout="rows")
    with pytest.raises(UserError, match="the columns are time steps"):
        read_series(path, layout="rows", id="V1")
    with pytest.raises(UserError, match=":3 holds no value"):
        read_series(write("a,b\nH1,1\nH2,\n"), layout="rows")


def test_the_last_rows_of_each_series_are_held_out() -> None:
    series = [make_series(np.arange(float(rows)), id=str(rows)) for rows in (10, 25)]
    parts = split_last(series, "3/2")
    assert [[(one.begin, one.end) for one in part] for part in parts[:3]] == [
        [(0, 5), (0, 20)],
        [(5, 8), (20, 23)],
        [(8, 10), (23, 25)],
    ]
    assert not parts.unused
    assert not split_last(series, "3").test
    with pytest.raises(UserError, match="series '10' has 10 rows; without the last 10 nothing is left"):
        split_last(series, "5/5")
    for wrong in ("0.1/0.2", "3/2/1", "0", "", "-3"):
        with pytest.raises(UserError, match="last:48"):
            split_last(series, wrong)
