import os

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages, as the `msgrpo` command asks for: before torch allocates
