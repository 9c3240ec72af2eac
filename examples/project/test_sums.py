import unittest


class Sums(unittest.TestCase):
    def test_of_nothing(self):
        self.assertEqual(sum([]), 0)

    def test_of_numbers(self):
        self.assertEqual(sum([1, 2, 3]), 6)
