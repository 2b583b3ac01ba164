"""The steps of ``ftmatrix nightly``: the base set, the cells, the comparison, the culprits, and what would be filed."""
