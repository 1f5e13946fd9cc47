"""Virtual time: the event heap and the world that carries out commands."""
