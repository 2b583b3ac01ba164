"""What runs inside a version environment. The only code here that meets torch; standard library at import."""
