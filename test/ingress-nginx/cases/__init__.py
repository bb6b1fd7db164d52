"""All cases of the corpus, by group."""

from case import Case

from . import access, canaries, certificates, cors, endpoints, headers, more, order, paths, redirects, responses, rewrites, snippets

GROUPS = (paths, rewrites, redirects, access, certificates, cors, responses, canaries, headers, snippets, order, more, endpoints)

CASES: list[Case] = [case for group in GROUPS for case in group.CASES]
