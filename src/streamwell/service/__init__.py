"""What the product does. Knows the ports, not the classes behind them."""
