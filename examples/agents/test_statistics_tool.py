import unittest

from statistics_tool import mean, median, scale, spread


class Works(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3)

    def test_median(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 2, 3]), 2.5)

    def test_spread(self):
        self.assertEqual(spread([4, -1, 2]), 5)

    def test_scale(self):
        self.assertEqual(scale([1, 2], 3), [3, 6])


if __name__ == "__main__":
    unittest.main()
