"""A package, unlike other folders of tests: so pytest ends the browser with the last of them."""
