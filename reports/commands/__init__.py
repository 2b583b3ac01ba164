"""Commands that answer a question, one a module; ``reports.cli`` names them."""
