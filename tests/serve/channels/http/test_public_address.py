"""An address that a provider is asked to fetch does not lead into a private network."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trimtab_serve.channels.http.public_address import is_public_https_url
from trimtab_serve.channels.http.request_bodies import MediaPartBody

PRIVATE = """
169.254.169.254 169.254.169.254. 169.254.169.254:443 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1
127.0.0.1 127.1 0 0.0.0.0 2130706433 0x7f000001 0x7f.1 0x 017700000001 0177.0.0.1 169.0xfea9fe
255.255.255.255 224.0.0.1 8.8.8.8. 8.8.8 08.8.8.8 256.1.1.1 1.1.1.1.1 a.1 x.0x7f [::1] [::]
[fe80::1] [fc00::1] [fd00:ec2::254] [ff02::1] [::ffff:169.254.169.254] [::ffff:8.8.8.8]
[64:ff9b::a9fe:a9fe] [2002:a9fe:a9fe::] [2001:0:a9fe:a9fe::] [::a9fe:a9fe] [1] [fe80::1%25eth0]
localhost localhost. LOCALHOST a.localhost x.local x.LOCAL. foo.internal
metadata.google.internal metadata vault.default db.svc kubernetes.default.svc.cluster.local
1.0.0.127.in-addr.arpa router.lan example.com@169.254.169.254 a:b@example.com .. . .com
example..com -a.com example.com.. %31%30.0.0.1 ①②⑦.⓪.⓪.① 127。0。0。1 example.com:99x
example.com:123456 192.0.0.8 192.0.0.9 192.0.0.10 192.0.0.170 168.63.129.16
"""
PUBLIC = """
example.com example.com. EXAMPLE.com images.example.com:8443 xn--exmple-cua.com
my_bucket.s3.example.com 8.8.8.8 1.1.1.1:443 [2606:4700:4700::1111] [2606:4700:4700::1111]:443
1.example.com 127.0.0.1.example.com
"""


def test_a_private_host_is_refused_however_it_is_written():
    urls = [f"https://{host}{rest}" for host in PRIVATE.split() for rest in ("", "/a.png")]
    assert [url for url in urls if is_public_https_url(url)] == []


def test_a_public_host_is_allowed():
    rests = ("", "/", "/a%20b.png", "?x=@10.0.0.1", "#a")
    urls = [f"https://{host}{rest}" for host in PUBLIC.split() for rest in rests]
    assert [url for url in urls if not is_public_https_url(url)] == []


def test_what_programs_read_differently_is_refused():
    urls = (
        "http://example.com/",
        "HTTPS://example.com/",
        "https:/example.com",
        "https:example.com",
        "https:///10.0.0.1/",
        "https://example.com\\@10.0.0.1/",
        "https://example.com/\\..",
        "https://exam\tple.com/",
        "https://example.com/\r\nHost: x",
        "https://example.com/a b",
        "https://ex\u0430mple.com/",
        " https://example.com/",
        "https://example.com\n",
        "https://example.com\x00.internal/",
    )
    assert [url for url in urls if is_public_https_url(url)] == []


def test_the_sender_is_told_what_is_allowed():
    with pytest.raises(ValidationError, match="must be a public name such as"):
        MediaPartBody(type="image", mime="image/png", url="https://10.0.0.1/a.png")
