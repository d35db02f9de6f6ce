"""Any mail can be read, or is known not to be."""

from __future__ import annotations

from email import policy
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.email import mime


def body(*lines: str | bytes) -> mime.Body:
    return mime.read_body(b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("utf-8", "utf-8", "grüße 漢字 🦊"),
        ("ISO-8859-1", "cp1252", "grüße “quoted” €"),
        ("us-ascii", "utf-8", "grüße, though it says ASCII"),
        ("us-ascii", "latin-1", "grüße, though it says ASCII"),
        ("koi8-r", "koi8-r", "привет"),
        ("windows-1251", "cp1251", "привет"),
        ("iso-2022-jp", "iso-2022-jp", "こんにちは"),
        ("shift_jis", "cp932", "①こんにちは"),
        ("gb2312", "gb18030", "镕基"),
        ("big5", "big5", "你好"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("utf-16", "utf-16", "grüße"),
        ("utf-7", "utf-7", "grüße"),
        ("x-unknown", "utf-8", "grüße"),
        ("no such charset", "latin-1", "grüße"),
        ("idna", "utf-8", "grüße"),
        ("zlib", "utf-8", "grüße"),
        ("unicode_escape", "utf-8", "gr\\x fine"),
    ],
)
def test_any_charset_is_read_and_one_that_is_none_as_what_it_probably_is(charset: str, codec: str, text: str) -> None:
    mail = b"Content-Type: text/plain; charset=" + f'"{charset}"'.encode() + b"\r\n\r\n" + text.encode(codec)
    assert mime.read_body(mail).text == text


def test_what_cannot_be_decoded_is_marked_and_the_rest_is_read() -> None:
    assert body("Content-Type: text/plain; charset=utf-8", "", b"\xc3\xa9 gr\xfc\xdfe").text == "\xe9 gr\ufffd\ufffde"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("", "hello"), "hello"),
        (("Content-Type: text/plain", "Content-Transfer-Encoding: base64", "", "!!! no base64"), None),
        (("Content-Type: text/plain", "Content-Transfer-Encoding: x-rot13", "", "uryyb"), "uryyb"),
        (("Content-Type: multipart/mixed", "", "hello"), "hello"),
        (("Content-Type: multipart/mixed; boundary=b", "", "no boundary here"), "no boundary here"),
        (("Content-Type: multipart/mixed; boundary=b", "", "--b", "", "never closed"), "never closed"),
        (("Content-Type: nonsense", "", "hello"), "hello"),
        (("Content-Type: text/plain; charset", "", "hello"), "hello"),
        (("Content-Type: ;;;", "", "hello"), "hello"),
        (("no header at all",), None),
        ((), ""),
    ],
)
def test_broken_mime_is_read_as_far_as_it_goes(lines: tuple[str, ...], text: str | None) -> None:
    found = body(*lines)
    assert text is None or found.text == text


@given(st.binary(max_size=600))
def test_no_bytes_break_it(content: bytes) -> None:
    mime.read_body(content)
    for name, value in mime.header_fields(content):
        assert mime.decoded(value).isprintable(), name


@given(
    st.lists(
        st.sampled_from(
            ["--b", "--b--", "", "Content-Type: multipart/alternative; boundary=b", "Content-Type: text/html",
             "Content-Type: message/rfc822", "Content-Disposition: attachment; filename*=x''%ff", "text",
             "=?utf-8?b?!?=",
             "Content-Transfer-Encoding: base64", "Content-Type: text/plain; format=flowed", "> quoted ", " "]
        ),
        max_size=30,
    )
)  # fmt: skip
def test_no_structure_breaks_it(lines: list[str]) -> None:
    found = body("Content-Type: multipart/mixed; boundary=b", "", *lines)
    assert len(found.files) <= mime.MAX_ATTACHMENTS


def test_of_two_forms_the_plain_one_is_read_unless_it_is_empty() -> None:
    for plain, wanted in (("plain", "plain"), (" \n", "**rich**")):
        mail = EmailMessage(policy=policy.SMTP)
        mail.set_content(plain)
        mail.add_alternative("<b>rich</b>", subtype="html")
        assert mime.read_body(mail.as_bytes()).text == wanted


def test_texts_around_a_picture_are_one_text_and_the_picture_is_a_file() -> None:
    found = body(
        "Content-Type: multipart/mixed; boundary=b", "",
        "--b", "Content-Type: text/plain", "", "before",
        "--b", "Content-Type: image/png; name=cat.png", "Content-Transfer-Encoding: base64", "", "aGVsbG8=",
        "--b", "Content-Type: text/plain", "", "after",
        "--b--",
    )  # fmt: skip
    assert found.text == "before\nafter"
    assert found.files == (mime.File(media_type="image/png", filename="cat.png", content=b"hello"),)


def test_a_mail_inside_a_mail_is_a_file_and_not_the_persons_words() -> None:
    inner = EmailMessage()
    inner.set_content("obey me")
    mail = EmailMessage()
    mail.set_content("see this")
    mail.add_attachment(inner)
    found = mime.read_body(mail.as_bytes())
    assert found.text == "see this"
    assert [file.media_type for file in found.files] == ["message/rfc822"]
    assert b"obey me" in found.files[0].content


def test_a_signature_is_no_file() -> None:
    found = body(
        "Content-Type: multipart/signed; boundary=b", "", "--b", "", "hello", "--b",
        "Content-Type: application/pgp-signature; name=s.asc", "", "xxx", "--b--",
    )  # fmt: skip
    assert (found.text, found.files) == ("hello", ())


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="../../etc/passwd"', "_.._etc_passwd"),
        ("attachment; filename*=utf-8''d%C3%A4tei.txt", "dätei.txt"),
        ('attachment; filename="=?utf-8?q?d=C3=A4tei=2Etxt?="', "dätei.txt"),
        ("attachment; filename*=utf-8''gpj%E2%80%AE.exe", "gpj .exe"),
        ('attachment; filename="a\tb"', "a b"),
        ("attachment; filename*=utf-9''%ff%fe", None),
        ("attachment", "attachment-1.bin"),
        ('attachment; filename=" ... "', "attachment-1.bin"),
        (f'attachment; filename="{"n" * 500}.pdf"', None),
    ],
)
def test_a_files_name_leads_nowhere(disposition: str, name: str | None) -> None:
    found = body("Content-Type: application/octet-stream", f"Content-Disposition: {disposition}", "", "x").files[0]
    assert name is None or found.filename == name
    assert "/" not in found.filename
    assert 0 < len(found.filename) <= 125


def test_a_text_file_is_handed_on_in_utf_8() -> None:
    found = body(
        "Content-Type: multipart/mixed; boundary=b", "",
        "--b", "Content-Type: text/csv; charset=iso-8859-1; name=a.csv", "",
        "ä;ö".encode("latin-1"), "--b--",
    )  # fmt: skip
    assert found.files[0].content == "ä;ö".encode()


def test_lines_that_were_broken_for_width_are_joined() -> None:
    """RFC 3676: a space at the end goes on, one in front is stuffing, quotations and signatures stay apart."""
    text = "This is one \nline.\n\n  Two.\n>> quoted \n>> on\n> less\n-- \nAda\n"
    joined = "This is one line.\n\n Two.\n>> quoted on\n> less\n-- \nAda"
    assert mime.unflow(text, is_space_deleted=False) == joined
    assert mime.unflow("Donau \ndampf\n", is_space_deleted=True) == "Donaudampf"


def test_a_mail_of_very_many_parts_is_known_before_it_is_parsed() -> None:
    few = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\n\nx\n" * 100
    many = b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n' + b"--b\n\nx\n" * (mime.MAX_PARTS + 1)
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(200))
    comments = b"Content-Type: text/plain\r\n\r\n" + b"-- SQL\n" * 100_000
    assert [mime.has_too_many_parts(each) for each in (few, many, nested, comments)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"gr\xfc\xdfe", "utf-8", "gr\u00fc\u00dfe"),
        ("gr\u00fc\u00dfe".encode(), "utf-8", "gr\u00fc\u00dfe"),
        ("gr\u00fc\u00dfe ".encode() + b"\xc3", "UTF8", "gr\u00fc\u00dfe \ufffd"),
    ],
)
def test_western_text_that_is_labelled_utf_8_is_read_as_what_it_is(data: bytes, charset: str, text: str) -> None:
    assert mime.decode_text(data, charset) == text


def test_a_field_that_stands_twice_in_a_part_is_noticed_and_one_in_a_mail_inside_it_is_not() -> None:
    part = b"Content-Type: text/plain\r\nContent-Type: text/html\r\n\r\nx\r\n"
    outer = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n%s--b--\r\n"
    assert mime.read_body(outer % part).ambiguity == "a part of it has Content-Type twice"
    assert mime.read_body(outer % (b"Content-Type: message/rfc822\r\n\r\n" + part)).ambiguity is None
