"""Why a cell or a pasted log failed."""
