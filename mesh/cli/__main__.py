"""``python -m mesh.cli``, as the children of ``mesh dev`` are started."""

from mesh.cli import main

if __name__ == "__main__":
    main()
