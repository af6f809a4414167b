"""The dashboard: pages of a cluster, rendered by a manager or by ``mesh dashboard``.

    browser ──▶ front ──▶ guard ──▶ pages ──▶ board ──▶ ManagerService
                  └─▶ the REST API, for all other paths

Pages work without JavaScript.  With it, each page follows one stream of its changed parts.
"""
