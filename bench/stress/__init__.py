"""Many users at once, by locust: what fails, and how long they wait."""
