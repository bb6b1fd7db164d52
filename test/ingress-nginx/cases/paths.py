"""Order of paths, regular expressions, and the normal form of a path."""

from case import Case, Request, ingress, path
from nginx import location, server

PREFIXES = server(
    "prefix.test", location("/", "web"), location("/api/", "api"), location("= /api", "api"), location("/api/v2/", "shop"),
    location("= /api/v2", "shop"), location("= /api/v2/one", "web"),
)
REGEXES = server(
    "regex.test", location('~* "^/api/users/me"', "shop"), location('~* "^/api/v[0-9]+"', "api"), location('~* "^/files/.*\\.png$"', "shop"),
    location('~* "^/files"', "api"), location('~* "^/"', "web"),
)

CASES = [
    Case("prefix", "prefix.test", [ingress("prefix", "prefix.test", [
        path("/"), path("/api", "api"), path("/api/v2", "shop"), path("/api/v2/one", "web", "Exact")])], PREFIXES, [
        Request("/"), Request("/api"), Request("/api/"), Request("/api/x?y=1&y=2"), Request("/apix"), Request("/API"), Request("/api?q"),
        Request("/api/v2"), Request("/api/v2x"), Request("/api/v2/"), Request("/api/v2/one"), Request("/api/v2/one/"),
        Request("/api/v2/onex"), Request("/?"), Request("/?a=b?c=/d//e/../f"),
    ]),
    Case("normal-form", "normal.test", [ingress("normal", "normal.test", [path("/"), path("/api", "api")])], server(
        "normal.test", location("/", "web"), location("/api/", "api"), location("= /api", "api")), [
        Request("//api/x"), Request("/api//x"), Request("/./api/x"), Request("/x/../api/y"), Request("/api/../x"), Request("/api/x/.."),
        Request("/api%2Fx"), Request("/%61pi/x"), Request("/api/%2e%2e/x"), Request("/a%20b"), Request("/api/%C3%A4"), Request("/api/a+b"),
        Request("/api/x;y=1"), Request("/api/%"), Request("/api/%zz"), Request("/api/%00"), Request("/.."), Request("/api/../../x"),
        Request("/api/\xe4"), Request("/api/\xc3\xa4"), Request("/api/|{}^"), Request("http://normal.test/api/x"), Request("http://prefix.test/api/x", host="normal.test"),
        Request("*", "OPTIONS"), Request("api"), Request("/api/x#y"), Request("/api/..;/x"), Request("/api/.x"), Request("/api/x/."),
        Request("/api\\x"),
    ]),
    Case("exact", "exact.test", [ingress("exact", "exact.test", [path("/exact", "api", "Exact"), path("/exact/deep/", "shop", "Exact")])], server(
        "exact.test", location("= /exact", "api"), location("= /exact/deep/", "shop"), has_root=False), [
        Request("/exact"), Request("/exact?x"), Request("/exact/"), Request("/exactly"), Request("/Exact"), Request("/"),
        Request("/exact/deep/"), Request("/exact/deep"), Request("//exact"),
    ]),
    Case("trailing-slash", "slash.test", [ingress("slash", "slash.test", [
        path("/dir/", "api", "ImplementationSpecific"), path("/pre/", "shop"), path("/free", "web", "ImplementationSpecific")])], server(
        "slash.test", location("/dir/", "api"), location("/pre/", "shop"), location("= /pre/", "shop"), location("/free", "web"),
        has_root=False), [
        Request("/dir"), Request("/dir?x=1"), Request("/dir/"), Request("/dirx"), Request("/pre"), Request("/pre/"), Request("/pre/x"),
        Request("/free"), Request("/free/"), Request("/freedom"), Request("/dir", "POST"), Request("/dir", headers=("Host: slash.test:8080",)),
    ]),
    Case("regex-order", "regex.test", [ingress("regex", "regex.test", [
        path("/", "web", "ImplementationSpecific"), path("/files", "api", "ImplementationSpecific"),
        path("/files/.*\\.png$", "shop", "ImplementationSpecific"), path("/api/v[0-9]+", "api", "ImplementationSpecific"),
        path("/api/users/me", "shop", "ImplementationSpecific")], {"use-regex": "true"})], REGEXES, [
        Request("/api/v1"), Request("/api/v12/x"), Request("/api/vx"), Request("/API/V1"), Request("/files/a.png"), Request("/files/a.PNG"),
        Request("/files/a.png/b"), Request("/filesystem"), Request("/api/users/me"), Request("/api/users/men"), Request("/x/api/v1"),
        Request("/api/v1?x=/files"), Request("//files/a.png"), Request("/files/a%2Epng"),
    ]),
    Case("regex-of-another-ingress", "mixed.test", [
        ingress("mixed-regex", "mixed.test", [path("/re/(a|b)", "api", "ImplementationSpecific")], {"use-regex": "true"}, age=2),
        ingress("mixed-plain", "mixed.test", [path("/plain", "shop"), path("/one", "web", "Exact")], age=1)], server(
        "mixed.test", location('~* "^/re/(a|b)"', "api"), location('~* "^/plain"', "shop"), location('~* "^/one"', "web"),
        '        location ~* "^/" { return 404; }'), [
        Request("/re/a"), Request("/re/bx"), Request("/re/c"), Request("/plainly"), Request("/PLAIN"), Request("/one"), Request("/one/two"),
        Request("/"),
    ]),
    Case("host-without-root", "sub.test", [ingress("sub", "sub.test", [path("/only", "api")])], server(
        "sub.test", location("/only/", "api"), location("= /only", "api"), has_root=False), [
        Request("/only"), Request("/"), Request("/other"), Request("/only", host="SUB.TEST"), Request("/only", host="sub.test."),
        Request("/only", host="sub.test:8080"),
    ]),
    Case("wildcard-host", "*.wild.test",
        [ingress("wild", "*.wild.test", [path("/", "api")]), ingress("exactly", "a.wild.test", [path("/", "shop")])],
         server(r"~^(?<subdomain>[\w-]+)\.wild\.test$", location("/", "api")) + "\n" + server("a.wild.test", location("/", "shop")), [
        Request("/", host="a.wild.test"), Request("/", host="b.wild.test"), Request("/", host="wild.test"), Request("/", host="x.y.wild.test"),
        Request("/", host="B.Wild.Test"),
    ]),
    Case("unknown-host", "unknown.test", [], "", [
        Request("/"), Request("/", "HEAD"), Request("/", "POST"), Request("/", host="127.0.0.1"), Request("/", tls=True),
        Request("/x?y", headers=("Host: ",)),
    ]),
    Case("same-path-twice", "twice.test", [
        ingress("twice-old", "twice.test", [path("/", "api")], age=5),
            ingress("twice-new", "twice.test", [path("/", "shop"), path("/new", "shop")], age=1)],
         server("twice.test", location("/", "api"), location("/new/", "shop"), location("= /new", "shop")), [
        Request("/"), Request("/new"), Request("/newer"),
    ]),
]
