"""All cases of the corpus, by group."""

from case import Case

from . import access, canaries, cors, headers, more, order, paths, redirects, responses, rewrites, snippets

CASES: list[Case] = [case for group in (paths, rewrites, redirects, access, cors, responses, canaries, headers, snippets, order,
    more) for case in group.CASES]
